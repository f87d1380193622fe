// attendant-server.
#include "server/server_process.h"

int main(int argc, char** argv) {
  return attendant::server::RunServerProcess({argv + 1, argv + argc},
                                             attendant::server::CreateEngine);
}
