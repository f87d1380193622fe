#include "server/request/sequence_layout.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/tensor_geometry.h"

namespace attendant::server {
namespace {

using kernels::SequenceBounds;
using Int32List = google::protobuf::RepeatedField<int32_t>;
using Int64List = google::protobuf::RepeatedField<int64_t>;

std::string Entry(const std::string& list, int64_t index) {
  return absl::StrCat(list, "[", index, "]");
}

absl::Status CheckCuSeqlens(const std::string& name, const Int32List& list,
                            int64_t total, const Bounds& bounds) {
  if (list[0] != 0) {
    return InvalidField(Entry(name, 0), absl::StrCat(list[0]), "0");
  }
  const int last = list.size() - 1;
  for (int i = 1; i <= last; ++i) {
    if (list[i] < list[i - 1]) {
      return InvalidField(
          Entry(name, i), absl::StrCat(list[i]),
          absl::StrCat("at least ", list[i - 1], ", the entry before"));
    }
    const int64_t length = int64_t{list[i]} - list[i - 1];
    if (length > bounds.max_seqlen) {
      return InvalidField(
          Entry(name, i),
          absl::StrCat(list[i], ", ", length, " after the entry before"),
          absl::StrCat("at most ", bounds.max_seqlen,
                       " after it (max_seqlen)"));
    }
  }
  if (list[last] != total) {
    return InvalidField(Entry(name, last), absl::StrCat(list[last]),
                        absl::StrCat(total, ", the tensor's total tokens"));
  }
  return absl::OkStatus();
}

absl::Status CheckEmpty(const std::string& name, int size, bool packed_rows) {
  if (size == 0) return absl::OkStatus();
  return InvalidField(name, absl::StrCat("given (", size, " entries)"),
                      packed_rows ? "empty with THD, whose lengths are "
                                    "cu_seqlens_q and cu_seqlens_k"
                                  : "empty unless the layout is THD");
}

absl::StatusOr<SequenceLayout> PackedSequences(const v1::AttendRequest& request,
                                               const StoredRows& rows,
                                               const Bounds& bounds) {
  RETURN_IF_ERROR(CheckEmpty("seqlens_q", request.seqlens_q_size(), true));
  RETURN_IF_ERROR(CheckEmpty("seqlens_k", request.seqlens_k_size(), true));
  RETURN_IF_ERROR(CheckEmpty("starts_q", request.starts_q_size(), true));
  RETURN_IF_ERROR(CheckEmpty("starts_k", request.starts_k_size(), true));
  const Int32List& cu_q = request.cu_seqlens_q();
  const bool shared = rows.packed_qkv && request.cu_seqlens_k().empty();
  const Int32List& cu_k = shared ? cu_q : request.cu_seqlens_k();
  if (cu_q.empty()) {
    return InvalidField("cu_seqlens_q", "empty",
                        "batch + 1 entries, as the layout is THD");
  }
  if (cu_k.size() != cu_q.size()) {
    return InvalidField("cu_seqlens_k", absl::StrCat(cu_k.size(), " entries"),
                        absl::StrCat(cu_q.size(), " entries, as cu_seqlens_q"));
  }
  SequenceLayout layout;
  layout.batch = cu_q.size() - 1;
  if (layout.batch > bounds.max_batch) {
    return InvalidField(
        "cu_seqlens_q", absl::StrCat(cu_q.size(), " entries"),
        absl::StrCat("at most ", bounds.max_batch, " + 1 entries (max_batch)"));
  }
  RETURN_IF_ERROR(CheckCuSeqlens("cu_seqlens_q", cu_q, rows.rows_q, bounds));
  RETURN_IF_ERROR(CheckCuSeqlens("cu_seqlens_k", cu_k, rows.rows_kv, bounds));
  layout.sequences.resize(std::max<int64_t>(layout.batch, 1));
  for (int b = 0; b < layout.batch; ++b) {
    SequenceBounds& sequence = layout.sequences[b];
    sequence.q_begin = cu_q[b];
    sequence.len_q = cu_q[b + 1] - cu_q[b];
    sequence.kv_begin = cu_k[b];
    sequence.len_kv = cu_k[b + 1] - cu_k[b];
    layout.mask_rows = std::max(layout.mask_rows, sequence.len_q);
    layout.mask_keys = std::max(layout.mask_keys, sequence.len_kv);
  }
  return layout;
}

// Used rows of every batch entry: lengths and starts of q or of k.
absl::Status CheckUsedRows(const std::string& lengths_name,
                           const Int64List& lengths,
                           const std::string& starts_name,
                           const Int64List& starts, int64_t batch,
                           int64_t stored) {
  const auto check_size = [&](const std::string& name, int64_t size) {
    if (size == 0 || size == batch) return absl::OkStatus();
    return InvalidField(name, absl::StrCat(size, " entries"),
                        absl::StrCat(batch, " entries (batch), or none"));
  };
  RETURN_IF_ERROR(check_size(lengths_name, lengths.size()));
  RETURN_IF_ERROR(check_size(starts_name, starts.size()));
  for (int b = 0; b < lengths.size(); ++b) {
    if (lengths[b] >= 0 && lengths[b] <= stored) continue;
    return InvalidField(Entry(lengths_name, b), absl::StrCat(lengths[b]),
                        absl::StrCat("0..", stored, ", the padded length"));
  }
  for (int b = 0; b < starts.size(); ++b) {
    // Without lengths a start above 0 leaves no room for the whole length:
    // whoever pads on the left says both.
    const int64_t length = lengths.empty() ? stored : lengths[b];
    if (starts[b] >= 0 && starts[b] <= stored - length) continue;
    return InvalidField(
        Entry(starts_name, b), absl::StrCat(starts[b]),
        absl::StrCat("0..", stored - length, ", the padded length ", stored,
                     " less the sequence's length ", length));
  }
  return absl::OkStatus();
}

bool Alike(const SequenceBounds& a, const SequenceBounds& b) {
  return a.q_begin == b.q_begin && a.len_q == b.len_q &&
         a.kv_begin == b.kv_begin && a.len_kv == b.len_kv;
}

absl::StatusOr<SequenceLayout> PaddedSequences(const v1::AttendRequest& request,
                                               const StoredRows& rows) {
  RETURN_IF_ERROR(
      CheckEmpty("cu_seqlens_q", request.cu_seqlens_q_size(), false));
  RETURN_IF_ERROR(
      CheckEmpty("cu_seqlens_k", request.cu_seqlens_k_size(), false));
  const Int64List& seqlens_q = request.seqlens_q();
  const Int64List& seqlens_k = request.seqlens_k();
  const Int64List& starts_q = request.starts_q();
  const Int64List& starts_k = request.starts_k();
  RETURN_IF_ERROR(CheckUsedRows("seqlens_q", seqlens_q, "starts_q", starts_q,
                                rows.batch, rows.rows_q));
  RETURN_IF_ERROR(CheckUsedRows("seqlens_k", seqlens_k, "starts_k", starts_k,
                                rows.batch, rows.rows_kv));
  const auto sequence_at = [&](int b) {
    SequenceBounds sequence;
    sequence.q_begin = starts_q.empty() ? 0 : starts_q[b];
    sequence.len_q = seqlens_q.empty() ? rows.rows_q : seqlens_q[b];
    sequence.kv_begin = starts_k.empty() ? 0 : starts_k[b];
    sequence.len_kv = seqlens_k.empty() ? rows.rows_kv : seqlens_k[b];
    return sequence;
  };
  SequenceLayout layout;
  layout.batch = rows.batch;
  layout.mask_rows = rows.rows_q;
  layout.mask_keys = rows.rows_kv;
  // batch entries are bounded by max_batch, and by the message if they differ.
  const SequenceBounds first = sequence_at(0);
  const bool lists = !seqlens_q.empty() || !seqlens_k.empty() ||
                     !starts_q.empty() || !starts_k.empty();
  bool alike = true;
  for (int b = 1; lists && alike && b < rows.batch; ++b) {
    alike = Alike(first, sequence_at(b));
  }
  if (alike) {
    layout.sequences = {first};
    return layout;
  }
  layout.sequences.reserve(rows.batch);
  for (int b = 0; b < rows.batch; ++b) {
    layout.sequences.push_back(sequence_at(b));
  }
  return layout;
}

// Gives every sequence its diagonal and its whole length.
absl::Status Align(const v1::AttendRequest& request, SequenceLayout* layout) {
  const v1::CausalAlignment alignment = request.alignment();
  if (!v1::CausalAlignment_IsValid(alignment)) {
    return UnimplementedField("alignment",
                              absl::StrCat(static_cast<int>(alignment)),
                              "TOP_LEFT, BOTTOM_RIGHT or unset");
  }
  const bool matters =
      layout->batch > 0 &&
      (request.causal() || request.has_window_left() ||
       request.has_window_right() || request.alibi_slopes_size() > 0);
  for (size_t b = 0; b < layout->sequences.size(); ++b) {
    SequenceBounds& sequence = layout->sequences[b];
    sequence.whole_len_q = sequence.len_q;
    if (!matters || sequence.len_q == sequence.len_kv) continue;
    if (alignment == v1::CAUSAL_ALIGNMENT_UNSPECIFIED) {
      return InvalidField(
          "alignment", "unset",
          absl::StrCat("TOP_LEFT or BOTTOM_RIGHT: causal, a window or ALiBi "
                       "is used and sequence ",
                       b, " has ", sequence.len_q, " queries but ",
                       sequence.len_kv, " keys"));
    }
    if (alignment == v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT) {
      sequence.diagonal_shift = sequence.len_kv - sequence.len_q;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SequenceLayout> ResolveSequences(
    const v1::AttendRequest& request, const StoredRows& rows,
    const Bounds& bounds) {
  absl::StatusOr<SequenceLayout> layout =
      rows.packed_rows ? PackedSequences(request, rows, bounds)
                       : PaddedSequences(request, rows);
  if (!layout.ok()) return layout;
  RETURN_IF_ERROR(Align(request, &*layout));
  return layout;
}

}  // namespace attendant::server
