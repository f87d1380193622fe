#include "server/calls/tensor_copy.h"

#include <algorithm>
#include <memory>

#include "kernels/base/status_macros.h"
#include "server/regions/region_memory.h"
#include "server/request/element_conversion.h"

namespace attendant::server {
namespace {

absl::Status ReadRegion(const CopyPiece& piece, std::byte* block) {
  std::byte* to = block + piece.block_offset;
  if (piece.from == piece.to) {
    return piece.region->Read(piece.message_offset, piece.bytes, to);
  }
  std::unique_ptr<std::byte[]> read(new std::byte[piece.bytes]);
  RETURN_IF_ERROR(
      piece.region->Read(piece.message_offset, piece.bytes, read.get()));
  ConvertElements(read.get(), piece.from, to, piece.to,
                  piece.bytes / kernels::SizeOf(piece.from));
  return absl::OkStatus();
}

}  // namespace

std::vector<CopyPiece> CutIntoPieces(const ParsedRequest& parsed,
                                     const ValidatedRequest& request,
                                     int64_t piece_bytes) {
  std::vector<CopyPiece> pieces;
  for (const ValidatedRequest::Image& image : request.images) {
    if (!image.place.staged()) continue;
    const int64_t begin =
        image.place.in_region()
            ? image.place.offset
            : parsed.tensors[static_cast<int>(image.field)].offset;
    for (int64_t done = 0; done < image.wire_bytes;) {
      CopyPiece piece;
      piece.bytes = std::min(piece_bytes, image.wire_bytes - done);
      piece.message_offset = begin + done;
      piece.region = image.place.region.get();
      piece.from = image.from;
      piece.to = image.to;
      piece.block_offset =
          image.block_offset +
          done / kernels::SizeOf(piece.from) * kernels::SizeOf(piece.to);
      pieces.push_back(piece);
      done += piece.bytes;
    }
  }
  return pieces;
}

absl::Status CopyPieceInto(const grpc::ByteBuffer& message,
                           const CopyPiece& piece, std::byte* block) {
  if (piece.region != nullptr) return ReadRegion(piece, block);
  return CopyTensorBytes(message, piece.message_offset, piece.bytes, piece.from,
                         piece.to, block + piece.block_offset);
}

}  // namespace attendant::server
