#include "kernels/sm90/decode_division.h"

#include <algorithm>
#include <limits>

namespace attendant::kernels::sm90 {
namespace {

// Few rows: where blocks get this many items or more, the last are cut to
// octets of at most kFewFineOctet keys, or else to about kFewFineKeys keys
// each, so that blocks end together.
constexpr int64_t kFewItemsPerBlock = 4;
constexpr int64_t kFewFineOctet = 1024;
constexpr int64_t kFewFineKeys = 512;
// Where they get fewer, tails of at most 1 / kFewLargestTail of an item.
constexpr int64_t kFewLargestTail = 4;

// Items of `unit` chunks (at multiples of `unit`) of one strand.
int64_t PartsOf(const DecodeSequence& record, int64_t unit) {
  return record.num_chunks == 0
             ? 1
             : DivideUp(record.end_chunk, unit) - record.first_chunk / unit;
}

// `batches` batch entries from first_batch on, `grain` chunks an item and
// `unit` a slot.
DecodeSegment SegmentOf(const DecodeSequence& record, int64_t grain,
                        int64_t unit, int64_t pairs, int64_t first_batch,
                        int64_t batches) {
  DecodeSegment segment = {};
  segment.first_batch = static_cast<int32_t>(first_batch);
  segment.grain = static_cast<int32_t>(grain);
  segment.parts = static_cast<int32_t>(PartsOf(record, grain));
  segment.items = static_cast<int32_t>(batches * pairs * segment.parts);
  segment.unit = segment.grain;
  if (segment.parts > 1) {
    segment.unit = static_cast<int32_t>(unit);
    segment.slots = static_cast<int32_t>(PartsOf(record, unit));
  }
  segment.first_part = record.first_chunk / segment.grain;
  segment.first_unit = record.first_chunk / segment.unit;
  segment.by_parts = Divisor::Of(segment.parts);
  return segment;
}

// Of the coarse segment's `items` on `num_blocks` blocks some have one more
// than others. These last ones leave so much of their ends to blocks without
// one that all have the same: multiprocessors share what leads to memory in
// groups, so memory is busy to the end only if all of them are. None unless all
// items are equally long.
DecodeTails TailsOf(const DecodeSequence& record, int64_t items,
                    int64_t num_blocks) {
  const int64_t unit = std::min(record.coarse.grain, record.num_chunks);
  const int64_t rest = items % num_blocks;
  const int64_t chunks =
      (unit * (num_blocks - rest) + num_blocks / 2) / num_blocks;
  const bool are_equal =
      record.first_chunk == 0 &&
      (record.coarse.parts == 1 || record.num_chunks % unit == 0);
  DecodeTails tails = {};
  if (items < num_blocks || !are_equal || chunks == 0 ||
      chunks * kFewLargestTail > unit) {
    return tails;
  }
  tails.items = static_cast<int32_t>(rest);
  tails.first_item = static_cast<int32_t>(items - rest);
  tails.chunks = static_cast<int32_t>(chunks);
  return tails;
}

}  // namespace

void DivideRecord(DecodeGroup& group, DecodeSequence& record, int64_t heads,
                  int64_t num_blocks, const DecodeLevels& levels) {
  const int64_t pairs = heads * record.row_tiles;
  record.by_row_tiles = Divisor::Of(record.row_tiles);
  record.by_pairs = Divisor::Of(static_cast<uint32_t>(pairs));
  const int64_t strands = record.batch_count * pairs;
  const size_t last = levels.units.size() - 1;
  size_t level = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i <= last; ++i) {
    const int64_t unit = levels.units[i];
    const int64_t keys = std::min<int64_t>(record.key_end - record.key_begin,
                                           unit * record.chunk_keys);
    const int64_t parts = PartsOf(record, unit);
    const int64_t slots = parts > 1 ? strands * parts : 0;
    const int64_t cost =
        DivideUp(strands * parts, num_blocks) * (keys + levels.item_keys) +
        DivideUp(slots * levels.slot_keys, num_blocks);
    if (cost < least) {
      least = cost;
      level = i;
    }
  }
  const int64_t parts = PartsOf(record, levels.units[level]);
  const bool has_fine =
      levels.evens_out && strands * parts >= kFewItemsPerBlock * num_blocks;
  // Octets cost two slots a strand, shorter items one for each chunk.
  const bool by_octets = kFewOctet * record.chunk_keys <= kFewFineOctet &&
                         record.num_chunks > kFewOctet &&
                         levels.units[level] > kFewOctet;
  // Half an item of the others for each block.
  const int64_t fine_batches =
      has_fine ? std::clamp<int64_t>(num_blocks / (2 * pairs * parts), 1,
                                     record.batch_count)
               : 0;
  const int64_t coarse_batches = record.batch_count - fine_batches;
  const int64_t unit = levels.units[level];
  record.coarse = SegmentOf(record, unit, unit, pairs, 0, coarse_batches);
  record.fine = SegmentOf(
      record, by_octets ? kFewOctet : DivideUp(kFewFineKeys, record.chunk_keys),
      by_octets ? kFewOctet : 1, pairs, coarse_batches, fine_batches);
  if (levels.may_have_tails && !has_fine) {
    record.tails = TailsOf(record, strands * parts, num_blocks);
  }
  const auto slots_of = [&](const DecodeSegment& segment) {
    return int64_t{segment.items} / segment.parts * segment.slots;
  };
  record.fine.first_slot = static_cast<int32_t>(slots_of(record.coarse));
  record.first_item = static_cast<int32_t>(group.num_items);
  record.first_strand = static_cast<int32_t>(group.num_strands);
  record.first_slot = static_cast<int32_t>(group.num_slots);
  record.tails.first_slot = static_cast<int32_t>(slots_of(record.coarse));
  record.tails.first_word = static_cast<int32_t>(strands);
  record.num_slots = static_cast<int32_t>(
      slots_of(record.coarse) + slots_of(record.fine) +
      int64_t{record.tails.items} * (DecodeTails::kKept + record.tails.chunks));
  group.combines |= record.num_slots > 0;
  const int64_t chunks =
      std::min<int64_t>(record.coarse.unit, record.num_chunks);
  group.keeps_chunks |= chunks > 1;
  group.keeps_quads |=
      record.coarse.unit > kSplitQuad && PartsOf(record, kSplitQuad) > 1;
  group.num_items +=
      int64_t{record.coarse.items} + record.fine.items + record.tails.items;
  group.num_strands += strands;
  group.num_tails += record.tails.items;
  group.num_slots += record.num_slots;
}

}  // namespace attendant::kernels::sm90
