// How the tensor bytes of a message (or of regions) are cut into pieces for the
// copy threads.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "server/request/problem_validator.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

// Below this a hand-over to a copy thread costs more than the copy.
inline constexpr int64_t kInlineCopyBytes = int64_t{256} << 10;
// Up to this gRPC's thread copies too: much is done before others have woken
// up.
inline constexpr int64_t kSharedCopyBytes = int64_t{4} << 20;
inline constexpr int64_t kSharedPieceBytes = int64_t{128} << 10;
inline constexpr int kCopyHelpers = 3;  // copy threads beside it
inline constexpr int64_t kCopyPieceBytes = int64_t{4} << 20;

struct CopyPiece {
  int64_t message_offset = 0;      // or region's
  RegionMemory* region = nullptr;  // null = out of the message
  int64_t bytes = 0;               // on the wire
  kernels::DataType from, to;
  int64_t block_offset = 0;
};

// Every image of `request` in pieces of about `piece_bytes` (a multiple of 64),
// none for an empty image, nor for one that is used where it lies in a region.
std::vector<CopyPiece> CutIntoPieces(const ParsedRequest& parsed,
                                     const ValidatedRequest& request,
                                     int64_t piece_bytes);

absl::Status CopyPieceInto(const grpc::ByteBuffer& message,
                           const CopyPiece& piece, std::byte* block);

}  // namespace attendant::server
