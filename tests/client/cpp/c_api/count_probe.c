/* A C program on the installed interface: the count probe, known by hand.
 * count_probe [TARGET]; without one it only checks that the library answers. */
#include <math.h>
#include <stdio.h>

#include "client/cpp/c_api/attendant_client_c.h"

static int Fail(attendant_error* error) {
  fprintf(stderr, "%d: %s [%s]\n", error->code, error->message, error->field);
  attendant_error_free(error);
  return 1;
}

int main(int argc, char** argv) {
  float q[2 * 4] = {0}, k[5 * 4] = {0}, v[5] = {1, 2, 3, 4, 5}, out[2], lse[2];
  const int64_t q_shape[4] = {1, 2, 1, 4}, k_shape[4] = {1, 5, 1, 4};
  const int64_t v_shape[4] = {1, 5, 1, 1};
  attendant_client* client;
  attendant_error* error = attendant_client_create(
      argc > 1 ? argv[1] : "localhost:1", NULL, &client);
  if (error != NULL) return Fail(error);
  if (argc < 2) {
    attendant_client_free(client);
    return attendant_abi_version() == ATTENDANT_ABI_VERSION ? 0 : 1;
  }
  attendant_attend_args args = {.struct_size = sizeof args};
  args.q = (attendant_tensor){q, q_shape, NULL, 4, ATTENDANT_FP32, 0, 0};
  args.k = (attendant_tensor){k, k_shape, NULL, 4, ATTENDANT_FP32, 0, 0};
  args.v = (attendant_tensor){v, v_shape, NULL, 4, ATTENDANT_FP32, 0, 0};
  args.out = (attendant_buffer){out, sizeof out};
  args.lse = (attendant_buffer){lse, sizeof lse};
  args.return_lse = 1;
  args.causal = 1;
  args.alignment = ATTENDANT_BOTTOM_RIGHT;
  attendant_result* result;
  error = attendant_attend(client, &args, 30000000000, NULL, &result);
  if (error != NULL) return Fail(error);
  const attendant_reply* reply = attendant_result_reply(result);
  printf("%g %g by %s on %s\n", out[0], out[1], reply->kernel, reply->backend);
  const int right = out[0] == 2.5f && out[1] == 3 &&
                    fabsf(lse[0] - logf(4)) < 1e-5f &&
                    fabsf(lse[1] - logf(5)) < 1e-5f;
  attendant_result_free(result);
  attendant_client_free(client);
  return right ? 0 : 1;
}
