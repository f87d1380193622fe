/* A C program on the installed C interface: exits with 0 if the library answers. */
#include <attendant/attendant_client_c.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  attendant_client* client = NULL;
  attendant_error* error = attendant_client_create("", NULL, &client);
  if (error == NULL || strcmp(error->field, "target") != 0) return 1;
  printf("libattendant_client %s: %s\n", attendant_version(), error->message);
  attendant_error_free(error);
  return 0;
}
