#include "tests/client/cpp/no_more_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

namespace {

thread_local bool none_left = false;

}  // namespace

// Found before the C library's, by libstdc++ too.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attr,
                              void* (*body)(void*), void* argument) {
  // gRPC, which names attributes, would not get by.
  if (none_left && attr == nullptr) return EAGAIN;
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attr, body, argument);
}

namespace attendant::client {

NoMoreThreads::NoMoreThreads() { none_left = true; }

NoMoreThreads::~NoMoreThreads() { none_left = false; }

}  // namespace attendant::client
