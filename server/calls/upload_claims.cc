#include "server/calls/upload_claims.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/request/errors.h"
#include "server/request/wire_codec.h"

namespace attendant::server {
namespace {

// Runs with gaps between them, of one tensor: bounds memory and time.
constexpr size_t kMaxRuns = 4096;

constexpr const char* kTensorNames[kNumTensorFields] = {"q", "k", "v", "qkv",
                                                        "mask"};

int64_t WireElementBytes(const ValidatedRequest::Image& image) {
  return image.raw ? 1 : kernels::SizeOf(image.from);
}

std::string RangeText(ByteRange range) {
  return absl::StrCat("[", range.begin, ", ", range.end, ")");
}

absl::Status NoSuchTensor(const StreamChunk& chunk) {
  const std::string name = v1::StreamTensor_IsValid(chunk.tensor)
                               ? v1::StreamTensor_Name(chunk.tensor)
                               : absl::StrCat(static_cast<int>(chunk.tensor));
  constexpr char kBound[] = "an input tensor of this request, in no region";
  return v1::StreamTensor_IsValid(chunk.tensor)
             ? InvalidField("chunk.tensor", name, kBound)
             : UnimplementedField("chunk.tensor", name, kBound);
}

// The chunk lies within its tensor `name` and cuts no element.
absl::Status CheckExtent(const StreamChunk& chunk,
                         const ValidatedRequest::Image& image,
                         const char* name) {
  const auto refuse = [&](const std::string& bound) {
    return InvalidField("chunk.byte_offset",
                        absl::StrCat(chunk.byte_offset, ", with ", chunk.bytes,
                                     " bytes of ", name),
                        bound);
  };
  if (chunk.byte_offset < 0 || chunk.bytes > image.wire_bytes ||
      chunk.byte_offset > image.wire_bytes - chunk.bytes) {
    return refuse(absl::StrCat("within the ", image.wire_bytes, " bytes that ",
                               name, " spans"));
  }
  const int64_t element = WireElementBytes(image);
  if (chunk.byte_offset % element != 0 || chunk.bytes % element != 0) {
    return refuse(absl::StrCat("whole elements of ", element, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

UploadClaims::UploadClaims(const ValidatedRequest& request)
    : request_(request), claimed_(request.images.size()) {
  for (const auto& image : request.images) {
    if (!image.place.in_region()) total_bytes_ += image.wire_bytes;
  }
}

absl::StatusOr<ChunkPlace> UploadClaims::Claim(const StreamChunk& chunk) {
  const auto& images = request_.images;
  const auto image =
      std::find_if(images.begin(), images.end(), [&](const auto& i) {
        return !i.place.in_region() &&
               static_cast<int>(i.field) + v1::STREAM_TENSOR_Q ==
                   static_cast<int>(chunk.tensor);
      });
  if (image == images.end()) return NoSuchTensor(chunk);
  const char* name = kTensorNames[static_cast<int>(image->field)];
  const absl::Status extent = CheckExtent(chunk, *image, name);
  if (!extent.ok()) return extent;
  const ChunkPlace place{static_cast<size_t>(image - images.begin()),
                         {chunk.byte_offset, chunk.byte_offset + chunk.bytes}};
  ByteRanges& claimed = claimed_[place.image];
  if (const auto twice = claimed.Add(place.range); twice.has_value()) {
    return InvalidField("chunk.byte_offset",
                        absl::StrCat(RangeText(place.range), " of ", name),
                        absl::StrCat("bytes that were not sent before, as ",
                                     RangeText(*twice), " were"));
  }
  if (claimed.runs() > kMaxRuns) {
    return InvalidField(
        "chunk.byte_offset", absl::StrCat(RangeText(place.range), " of ", name),
        absl::StrCat("such that at most ", kMaxRuns, " runs lie apart"));
  }
  claimed_bytes_ += chunk.bytes;
  return place;
}

absl::Status UploadClaims::Gap() const {
  for (size_t i = 0; i < claimed_.size(); ++i) {
    const auto& image = request_.images[i];
    if (image.place.in_region()) continue;
    const auto missing = claimed_[i].Missing({0, image.wire_bytes});
    if (missing.empty()) continue;
    const char* name = kTensorNames[static_cast<int>(image.field)];
    return InvalidField(
        name,
        absl::StrCat(claimed_[i].bytes(), " bytes without ",
                     RangeText(missing[0])),
        absl::StrCat("all of the ", image.wire_bytes, " bytes that it spans"));
  }
  return absl::OkStatus();
}

}  // namespace attendant::server
