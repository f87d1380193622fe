#include "server/regions/request_regions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using Image = ValidatedRequest::Image;

struct NamedSpec {
  const char* name;
  const v1::TensorSpec* spec;
};

NamedSpec SpecOf(const v1::AttendRequest& header, TensorField field) {
  switch (field) {
    case TensorField::kQ:
      return {"q", &header.q()};
    case TensorField::kK:
      return {"k", &header.k()};
    case TensorField::kV:
      return {"v", &header.v()};
    case TensorField::kQkv:
      return {"qkv", &header.qkv()};
    case TensorField::kMask:
      return {"mask", &header.mask()};
  }
  return {"", nullptr};
}

// Bytes that a request reads or writes in a region.
struct Extent {
  std::string field;
  std::string identity;
  int64_t begin = 0, end = 0;
};

class Placer {
 public:
  Placer(const std::string& owner, bool on_gpu, RegionRegistry* registry,
         ValidatedRequest* request)
      : owner_(owner),
        on_gpu_(on_gpu),
        registry_(registry),
        request_(request) {}

  absl::Status Place(const v1::AttendRequest& header) {
    for (Image& image : request_->images) {
      const NamedSpec named = SpecOf(header, image.field);
      if (!named.spec->has_region()) continue;
      RETURN_IF_ERROR(PlaceInput(absl::StrCat(named.name, ".region"),
                                 named.spec->region(), &image));
    }
    if (header.has_output_region()) {
      RETURN_IF_ERROR(PlaceOutput("output_region", header.output_region(),
                                  request_->wire_output_bytes(),
                                  &request_->output_place));
      *request_->output_spec.mutable_region() = header.output_region();
    }
    if (header.has_lse_region()) {
      RETURN_IF_ERROR(PlaceOutput("lse_region", header.lse_region(),
                                  request_->lse_bytes, &request_->lse_place));
      *request_->lse_spec.mutable_region() = header.lse_region();
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<TensorPlace> Find(const std::string& field,
                                   const v1::Region& region, int64_t bytes) {
    ASSIGN_OR_RETURN(
        RegionEntry entry,
        registry_->Find(owner_, region.name(), absl::StrCat(field, ".name")));
    const int64_t size = entry.memory->bytes();
    const int64_t offset = region.byte_offset();
    if (offset < 0 || offset > size || bytes > size - offset) {
      return InvalidField(
          field, absl::StrCat("bytes ", offset, " to ", offset, " + ", bytes),
          absl::StrCat("within the region's ", size, " bytes"));
    }
    TensorPlace place;
    place.region = std::move(entry.memory);
    place.offset = offset;
    return place;
  }

  absl::Status PlaceInput(const std::string& field, const v1::Region& region,
                          Image* image) {
    ASSIGN_OR_RETURN(TensorPlace place, Find(field, region, image->wire_bytes));
    const bool converted = !image->raw && image->from != image->to;
    RegionMemory& memory = *place.region;
    if (memory.device() != nullptr) {
      if (converted) {
        return UnimplementedField(
            field, "in device memory, of another dtype than is computed in",
            "in the dtype that is computed in (see compute_dtype)");
      }
      place.kernel_memory = memory.device() + place.offset;
    } else if (memory.host() != nullptr && !converted &&
               image->field != TensorField::kMask) {
      // A mask is always copied: what it says must not change between two
      // looks.
      (on_gpu_ ? place.host_memory : place.kernel_memory) =
          memory.host() + place.offset;
    }
    extents_.push_back(ExtentOf(field, place, image->wire_bytes));
    image->place = std::move(place);
    return absl::OkStatus();
  }

  absl::Status PlaceOutput(const std::string& field, const v1::Region& region,
                           int64_t bytes, TensorPlace* result) {
    ASSIGN_OR_RETURN(TensorPlace place, Find(field, region, bytes));
    RegionMemory& memory = *place.region;
    if (!memory.writable()) {
      return InvalidField(field, "read-only", "in a region that is writable");
    }
    if (result == &request_->output_place &&
        request_->narrow_output_to.has_value()) {
      // Computed in fp32 in the job's block and rounded there.
    } else if (memory.device() != nullptr) {
      place.kernel_memory = memory.device() + place.offset;
    } else if (memory.host() != nullptr) {
      (on_gpu_ ? place.host_memory : place.kernel_memory) =
          memory.host() + place.offset;
    }
    const Extent extent = ExtentOf(field, place, bytes);
    for (const Extent& other : extents_) {
      if (other.identity != extent.identity || extent.begin >= other.end ||
          other.begin >= extent.end) {
        continue;
      }
      return InvalidField(
          field, absl::StrCat("in bytes that ", other.field, " takes"),
          "apart from everything else that the request reads or writes");
    }
    extents_.push_back(extent);
    *result = std::move(place);
    return absl::OkStatus();
  }

  static Extent ExtentOf(const std::string& field, const TensorPlace& place,
                         int64_t bytes) {
    const int64_t begin = place.region->identity_offset() + place.offset;
    return {field, place.region->identity(), begin, begin + bytes};
  }

  const std::string& owner_;
  const bool on_gpu_;
  RegionRegistry* const registry_;
  ValidatedRequest* const request_;
  std::vector<Extent> extents_;
};

// Moves an image and what points into it.
void MoveImage(int64_t offset, Image* image, ValidatedRequest* request) {
  const int64_t by = offset - image->block_offset;
  image->block_offset = offset;
  const bool packed = image->field == TensorField::kQkv;
  if (packed || image->field == TensorField::kQ) request->q_offset += by;
  if (packed || image->field == TensorField::kK) request->k_offset += by;
  if (packed || image->field == TensorField::kV) request->v_offset += by;
  if (image->field == TensorField::kMask) request->mask_offset += by;
}

// What the kernel finds in place gets offsets behind the block, so that every
// image has offsets of its own.
void LayOutInput(ValidatedRequest* request) {
  int64_t end = 0;
  const auto move_those = [&](const auto& condition) {
    for (Image& image : request->images) {
      if (!condition(image.place)) continue;
      MoveImage(end, &image, request);
      end = AlignedToBlock(end + image.block_bytes);
    }
    return end;
  };
  const int64_t staged =
      move_those([](const TensorPlace& place) { return place.staged(); });
  request->input_bytes = move_those(
      [](const TensorPlace& place) { return place.host_memory != nullptr; });
  request->device_only_input_bytes = request->input_bytes - staged;
  move_those(
      [](const TensorPlace& place) { return place.kernel_memory != nullptr; });
}

void LayOutOutput(ValidatedRequest* request) {
  int64_t next = 0;
  const auto place_those = [&](const auto& condition) {
    const auto take = [&](const TensorPlace& place, int64_t bytes,
                          int64_t* offset) {
      if (!condition(place)) return;
      *offset = next;
      next = AlignedToBlock(next + bytes);
    };
    take(request->output_place, request->output_bytes, &request->output_offset);
    take(request->lse_place, request->lse_bytes, &request->lse_offset);
  };
  place_those([](const TensorPlace& place) { return place.staged(); });
  const int64_t staged = next;
  place_those(
      [](const TensorPlace& place) { return place.host_memory != nullptr; });
  request->device_only_output_bytes =
      std::max<int64_t>(0, request->output_block_bytes() - staged);
}

}  // namespace

bool NamesRegions(const v1::AttendRequest& request) {
  return request.q().has_region() || request.k().has_region() ||
         request.v().has_region() || request.qkv().has_region() ||
         request.mask().has_region() || request.has_output_region() ||
         request.has_lse_region();
}

absl::Status PlaceRegions(const std::string& owner,
                          const v1::AttendRequest& header, bool on_gpu,
                          RegionRegistry* registry, ValidatedRequest* request) {
  if (!NamesRegions(header)) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRegionOwner(owner));
  RETURN_IF_ERROR(Placer(owner, on_gpu, registry, request).Place(header));
  LayOutInput(request);
  LayOutOutput(request);
  return absl::OkStatus();
}

absl::Status CheckStreamRegions(const ValidatedRequest& request) {
  const auto check = [](const char* field, const TensorPlace& place) {
    if (!place.in_region()) return absl::OkStatus();
    constexpr char kBound[] =
        "used where it lies, without an event, in a stream (by Attend all are)";
    if (place.region->ready_event() != nullptr) {
      return UnimplementedField(field, "in memory with a ready_event", kBound);
    }
    return place.staged()
               ? UnimplementedField(field, "in memory that is copied", kBound)
               : absl::OkStatus();
  };
  constexpr const char* kFields[kNumTensorFields] = {
      "q.region", "k.region", "v.region", "qkv.region", "mask.region"};
  for (const Image& image : request.images) {
    RETURN_IF_ERROR(check(kFields[static_cast<int>(image.field)], image.place));
  }
  RETURN_IF_ERROR(check("output_region", request.output_place));
  return check("lse_region", request.lse_place);
}

std::vector<StagedOutput> StagedOutputs(const ValidatedRequest& request,
                                        int64_t piece_bytes) {
  std::vector<StagedOutput> pieces;
  const auto add = [&](const TensorPlace& place, int64_t offset,
                       int64_t bytes) {
    if (!place.in_region() || !place.staged()) return;
    for (int64_t done = 0; done < bytes; done += piece_bytes) {
      pieces.push_back({&place, place.offset + done, offset + done,
                        std::min(piece_bytes, bytes - done)});
    }
  };
  add(request.output_place, request.output_offset, request.wire_output_bytes());
  add(request.lse_place, request.lse_offset, request.lse_bytes);
  return pieces;
}

absl::Status WriteStagedOutput(const StagedOutput& output,
                               const std::byte* block) {
  return output.place->region->Write(output.region_offset, output.bytes,
                                     block + output.block_offset);
}

}  // namespace attendant::server
