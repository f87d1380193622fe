#include "server/tensor_copy.h"

#include <algorithm>

namespace attendant::server {

std::vector<CopyPiece> CutIntoPieces(const ParsedRequest& parsed,
                                     const ValidatedRequest& request,
                                     int64_t piece_bytes) {
  std::vector<CopyPiece> pieces;
  for (const ValidatedRequest::Image& image : request.images) {
    const auto& extent = parsed.tensors[static_cast<int>(image.field)];
    for (int64_t done = 0; done < image.wire_bytes;) {
      CopyPiece piece;
      piece.bytes = std::min(piece_bytes, image.wire_bytes - done);
      piece.message_offset = extent.offset + done;
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
  return CopyTensorBytes(message, piece.message_offset, piece.bytes, piece.from,
                         piece.to, block + piece.block_offset);
}

}  // namespace attendant::server
