// The process's heap, as a client that gets large answers needs it.
#pragma once

namespace attendant::client {

// Lets the process keep up to 16 MiB that were freed at a heap's end. gRPC
// reads an answer into fresh blocks of the heap; by default glibc returns what
// is beyond 128 KiB to the system as soon as they are freed, and the next
// answer pays for every page again. This is what glibc does by itself once a
// program has freed a mapped block of 8 MiB; a program that sets glibc's
// thresholds (mallopt, GLIBC_TUNABLES) keeps its own. Thread-safe.
void KeepFreedMemory();

}  // namespace attendant::client
