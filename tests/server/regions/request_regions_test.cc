#include "server/regions/request_regions.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "server/calls/tensor_copy.h"
#include "server/engine/item_copies.h"
#include "server/request/errors.h"
#include "tests/server/regions/fake_region.h"
#include "tests/server/validate.h"
#include "tests/testing/malformed_requests.h"

namespace attendant::testing {
namespace {

using server::RegionKind;
using server::ValidatedRequest;
using ::testing::HasSubstr;
using Reach = FakeRegion::Reach;

const std::string kOwner(32, 'o');
constexpr int64_t kRegionBytes = 1 << 16;

server::Bounds WithRegions() {
  server::Bounds bounds;
  bounds.max_regions = bounds.max_regions_per_owner = 100;
  bounds.max_region_bytes = bounds.max_region_bytes_per_owner = 1 << 30;
  bounds.region_idle_seconds = 60;
  return bounds;
}

class RequestRegionsTest : public ::testing::Test {
 protected:
  std::string AddRegion(Reach reach, bool writable = true) {
    const auto entry = registry_.Add(
        kOwner, RegionKind::kHostBuffer, kRegionBytes, false, [&] {
          return absl::StatusOr<std::unique_ptr<server::RegionMemory>>(
              std::make_unique<FakeRegion>(kRegionBytes, &alive_, reach,
                                           writable));
        });
    EXPECT_TRUE(entry.ok()) << entry.status();
    return entry->name;
  }
  server::RegionMemory& Memory(const std::string& name) {
    return *registry_.Find(kOwner, name, "")->memory;
  }

  static void Name(const std::string& name, int64_t offset, int64_t bytes,
                   v1::Region* region) {
    region->set_name(name);
    region->set_byte_offset(offset);
    region->set_byte_length(bytes);
  }
  static void MoveTo(const std::string& name, int64_t offset,
                     v1::TensorSpec* spec, std::string* data) {
    Name(name, offset, static_cast<int64_t>(data->size()),
         spec->mutable_region());
    data->clear();
  }

  absl::StatusOr<std::unique_ptr<ValidatedRequest>> Place(
      const v1::AttendRequest& request, bool on_gpu,
      const std::string& owner = kOwner) {
    auto validated = server::Validate(request, WithRegions());
    if (!validated.ok()) return validated;
    const absl::Status status = server::PlaceRegions(
        owner, request, on_gpu, &registry_, validated->get());
    if (!status.ok()) return status;
    return validated;
  }

  std::atomic<int> alive_{0};
  server::RegionRegistry registry_{WithRegions()};
};

TEST_F(RequestRegionsTest, ACpuComputesWhereTheTensorsLie) {
  const std::string name = AddRegion(Reach::kHost);
  v1::AttendRequest request = GoodRequest();
  MoveTo(name, 256, request.mutable_k(), request.mutable_k_data());
  Name(name, 1 << 15, 2 * 3 * 4 * 8 * 4, request.mutable_output_region());
  const auto placed = Place(request, false);
  ASSERT_TRUE(placed.ok()) << placed.status();
  std::vector<std::byte> input((*placed)->input_bytes);
  std::vector<std::byte> output((*placed)->output_block_bytes());
  const kernels::AttentionProblem problem =
      server::Placed(**placed, input.data(), output.data());
  EXPECT_EQ(problem.k.data, Memory(name).host() + 256);
  EXPECT_EQ(problem.out.data, Memory(name).host() + (1 << 15));
  EXPECT_EQ(problem.q.data, input.data());
  EXPECT_EQ(static_cast<void*>(problem.lse), output.data());
  EXPECT_EQ((*placed)->output_spec.region().name(), name);
  // q and v alone take room, LSE too.
  EXPECT_EQ(static_cast<int64_t>(output.size()), (*placed)->lse_bytes);
  EXPECT_LE((*placed)->input_bytes,
            server::AlignedToBlock((*placed)->images[0].block_bytes) +
                server::AlignedToBlock((*placed)->images[2].block_bytes));
}

TEST_F(RequestRegionsTest, AGpuCopiesFromAndToHostRegions) {
  const std::string name = AddRegion(Reach::kHost);
  v1::AttendRequest request = GoodRequest();
  MoveTo(name, 0, request.mutable_q(), request.mutable_q_data());
  const int64_t out_bytes = 2 * 3 * 4 * 8 * 4;
  Name(name, 1 << 15, out_bytes, request.mutable_output_region());
  const auto placed = Place(request, true);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const ValidatedRequest& r = **placed;
  // q lies behind what the host's block has; so does O.
  EXPECT_EQ(r.q_offset, r.host_input_bytes());
  EXPECT_LT(r.k_offset, r.q_offset);
  EXPECT_EQ(r.lse_offset, 0);
  EXPECT_EQ(r.output_offset, server::AlignedToBlock(r.lse_bytes));
  EXPECT_EQ(r.output_block_bytes() - r.host_output_bytes(), out_bytes);

  const server::ItemRange whole{0, 2, 0, 2};
  const auto inputs = server::InputCopies(r, whole, true);
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].host, nullptr);
  EXPECT_EQ(inputs[1].host, Memory(name).host());
  EXPECT_EQ(inputs[1].offset, r.q_offset);
  const auto outputs = server::OutputCopies(r, whole);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].host, Memory(name).host() + (1 << 15));
  EXPECT_EQ(outputs[1].host, nullptr);
  // And piece by piece, the same bytes of the same regions.
  const auto half = server::InputCopies(r, {1, 2, 0, 2}, true);
  int64_t from_region = 0;
  for (const server::CopyRect& rect : half) {
    if (rect.host == nullptr) continue;
    from_region += rect.width * rect.height;
    EXPECT_EQ(rect.host - Memory(name).host(), rect.offset - r.q_offset);
  }
  EXPECT_EQ(from_region, r.images[0].block_bytes / 2);
}

TEST_F(RequestRegionsTest, DeviceMemoryNeedsNoCopyAndNoRoom) {
  const std::string name = AddRegion(Reach::kDevice);
  v1::AttendRequest request = GoodRequest();
  int64_t offset = 0;
  for (const auto& [spec, data] :
       {std::pair(request.mutable_q(), request.mutable_q_data()),
        std::pair(request.mutable_k(), request.mutable_k_data()),
        std::pair(request.mutable_v(), request.mutable_v_data())}) {
    const auto bytes = static_cast<int64_t>(data->size());
    MoveTo(name, offset, spec, data);
    offset += server::AlignedToBlock(bytes);
  }
  Name(name, 1 << 15, 2 * 3 * 4 * 8 * 4, request.mutable_output_region());
  Name(name, 3 << 14, 2 * 3 * 4 * 4, request.mutable_lse_region());
  const auto placed = Place(request, true);
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ((*placed)->input_bytes, 0);
  EXPECT_EQ((*placed)->output_block_bytes(), 0);
  EXPECT_TRUE(server::InputCopies(**placed, {0, 2, 0, 2}, true).empty());
  EXPECT_TRUE(server::OutputCopies(**placed, {0, 2, 0, 2}).empty());
  EXPECT_TRUE(server::InputCopies(**placed, {0, 1, 0, 2}, true).empty());
  EXPECT_TRUE(server::OutputCopies(**placed, {0, 1, 1, 2}).empty());
  const auto problem = server::Placed(**placed, nullptr, nullptr);
  EXPECT_EQ(static_cast<void*>(problem.lse), Memory(name).device() + (3 << 14));
}

TEST_F(RequestRegionsTest, WhatCanOnlyBeReadAndWrittenIsStaged) {
  const std::string name = AddRegion(Reach::kCopiesOnly);
  v1::AttendRequest request = GoodRequest();
  const std::string bytes = request.v_data();
  std::memcpy(static_cast<FakeRegion&>(Memory(name)).data() + 512, bytes.data(),
              bytes.size());
  MoveTo(name, 512, request.mutable_v(), request.mutable_v_data());
  Name(name, 1 << 15, 2 * 3 * 4 * 8 * 4, request.mutable_output_region());
  const auto placed = Place(request, true);
  ASSERT_TRUE(placed.ok()) << placed.status();
  const ValidatedRequest& r = **placed;
  EXPECT_EQ(r.host_input_bytes(), r.input_bytes);
  const auto parsed = Parse(request);
  std::vector<std::byte> block(r.input_bytes);
  int64_t pieces = 0;
  for (const server::CopyPiece& piece : server::CutIntoPieces(*parsed, r, 64)) {
    if (piece.region == nullptr) continue;
    ++pieces;
    ASSERT_TRUE(server::CopyPieceInto({}, piece, block.data()).ok());
  }
  EXPECT_GT(pieces, 1);
  EXPECT_EQ(std::memcmp(block.data() + r.v_offset, bytes.data(), bytes.size()),
            0);
  int64_t stored = 0;
  std::vector<std::byte> output(r.output_block_bytes(), std::byte{7});
  for (const auto& part : server::StagedOutputs(r, 100)) {
    EXPECT_TRUE(server::WriteStagedOutput(part, output.data()).ok());
    stored += part.bytes;
  }
  EXPECT_EQ(stored, r.output_bytes);
  EXPECT_EQ(static_cast<FakeRegion&>(Memory(name)).data()[1 << 15],
            std::byte{7});
}

TEST_F(RequestRegionsTest, MasksAndConversionsAreCopiedOutOfRegions) {
  const std::string name = AddRegion(Reach::kHost);
  v1::AttendRequest request = GoodRequest();
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_BHSD, {2, 4, 3, 4},
            request.mutable_mask(), request.mutable_mask_data());
  MoveTo(name, 0, request.mutable_mask(), request.mutable_mask_data());
  const auto masked = Place(request, false);
  ASSERT_TRUE(masked.ok()) << masked.status();
  EXPECT_TRUE((*masked)->images[3].place.staged());

  request = GoodRequest();
  request.set_compute_dtype(v1::DATA_TYPE_BF16);
  request.set_output_dtype(v1::DATA_TYPE_FP32);
  MoveTo(name, 0, request.mutable_q(), request.mutable_q_data());
  const auto converted = Place(request, false);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_TRUE((*converted)->images[0].place.staged());
  request.mutable_q()->mutable_region()->set_name(AddRegion(Reach::kDevice));
  EXPECT_EQ(Place(request, true).status().code(),
            absl::StatusCode::kUnimplemented);
}

struct Abuse {
  std::function<void(v1::AttendRequest&)> mutate;
  absl::StatusCode code;
  std::string field;
  std::string bound;
};

TEST_F(RequestRegionsTest, EveryAbuseIsRefusedByNameAndHoldsNothing) {
  const std::string name = AddRegion(Reach::kHost);
  const std::string read_only = AddRegion(Reach::kHost, false);
  constexpr int64_t kOut = 2 * 3 * 4 * 8 * 4;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  using Request = v1::AttendRequest;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<Abuse> abuses = {
      {[](Request& r) { r.mutable_q()->mutable_region()->set_name("../../x"); },
       absl::StatusCode::kNotFound, "q.region.name", "of this owner"},
      {[](Request& r) { r.mutable_q()->mutable_region()->set_name("//x"); },
       absl::StatusCode::kNotFound, "q.region.name", "of this owner"},
      {[](Request& r) { r.mutable_q()->mutable_region()->clear_name(); },
       absl::StatusCode::kNotFound, "q.region.name", "of this owner"},
      {[](Request& r) {
         r.mutable_q()->mutable_region()->set_byte_offset(-256);
       },
       kInvalid, "q.region.byte_offset", "multiple of 256"},
      {[](Request& r) { r.mutable_q()->mutable_region()->set_byte_offset(8); },
       kInvalid, "q.region.byte_offset", "multiple of 256"},
      {[](Request& r) {
         r.mutable_q()->mutable_region()->set_byte_offset(kMax / 256 * 256);
       },
       kInvalid, "q.region", "within the region's 65536"},
      {[](Request& r) {
         r.mutable_q()->mutable_region()->set_byte_offset(kRegionBytes - 256);
       },
       kInvalid, "q.region", "within the region's 65536"},
      {[](Request& r) { r.mutable_q()->mutable_region()->set_byte_length(-1); },
       kInvalid, "q.region.byte_length", "exactly the 768"},
      {[](Request& r) {
         r.mutable_q()->mutable_region()->set_byte_length(kMax);
       },
       kInvalid, "q.region.byte_length", "exactly the 768"},
      {[](Request& r) { r.set_q_data("x"); }, kInvalid, "q_data", "absent"},
      {[&](Request& r) { Name(name, 0, kOut, r.mutable_output_region()); },
       kInvalid, "output_region", "apart"},
      {[&](Request& r) { Name(name, 512, kOut, r.mutable_output_region()); },
       kInvalid, "output_region", "apart"},
      {[&](Request& r) {
         Name(name, 4096, kOut, r.mutable_output_region());
         Name(name, 4096 + 512, 2 * 3 * 4 * 4, r.mutable_lse_region());
       },
       kInvalid, "lse_region", "apart"},
      {[&](Request& r) { Name(read_only, 0, kOut, r.mutable_output_region()); },
       kInvalid, "output_region", "writable"},
      {[&](Request& r) {
         Name(name, 4096, kOut - 1, r.mutable_output_region());
       },
       kInvalid, "output_region.byte_length", "exactly"},
      {[&](Request& r) {
         r.set_return_lse(false);
         Name(name, 4096, 96, r.mutable_lse_region());
       },
       kInvalid, "lse_region", "return_lse"},
  };
  for (size_t i = 0; i < abuses.size(); ++i) {
    SCOPED_TRACE(i);
    v1::AttendRequest request = GoodRequest();
    MoveTo(name, 0, request.mutable_q(), request.mutable_q_data());
    ASSERT_TRUE(Place(request, false).ok());
    abuses[i].mutate(request);
    const absl::Status status = Place(request, false).status();
    EXPECT_EQ(status.code(), abuses[i].code) << status;
    const auto detail = server::DetailOf(status);
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field(), abuses[i].field);
    EXPECT_THAT(detail->bound(), HasSubstr(abuses[i].bound));
    EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr(name)));
    for (const auto& entry : registry_.List(kOwner)) EXPECT_EQ(entry.uses, 1);
  }
}

TEST_F(RequestRegionsTest, AnotherOwnerAndNoOwnerAreRefused) {
  v1::AttendRequest request = GoodRequest();
  MoveTo(AddRegion(Reach::kHost), 0, request.mutable_q(),
         request.mutable_q_data());
  EXPECT_EQ(Place(request, false, std::string(32, 'x')).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Place(request, false, "").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Place(GoodRequest(), false, "").ok());
}

TEST_F(RequestRegionsTest, AServerWithoutRegionsSaysSo) {
  v1::AttendRequest request = GoodRequest();
  request.mutable_q()->mutable_region();
  const auto refused = server::Validate(request);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("without regions"));
}

}  // namespace
}  // namespace attendant::testing
