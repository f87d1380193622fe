// From problems to the records that the kernels read. Host only, no pointers
// followed: tested without a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "kernels/sm90/kernel_params.h"
#include "kernels/sm90/tensor_map.h"
#include "kernels/sm90/tile_table.h"

namespace attendant::kernels::sm90 {

// True if the plain softmax variant cannot serve it: softcap, ALiBi, or a scale
// that is not a positive ordinary number (0 * -inf, max at the wrong end).
bool NeedsScoreMod(const AttentionProblem& problem);

struct ProblemExtents {
  MapExtents q, k, v;
};
ProblemExtents ExtentsOf(const AttentionProblem& problem);

// Without device pointers to slopes and sinks: the launcher knows those.
ProblemRecord RecordOf(const AttentionProblem& problem);

// Records of problem `index` with tiles of `tile_q` rows, none for what the
// decode kernels serve (the record is there for the repair); first_tile
// counts from 0 within each record and is set by NumberTiles.
std::vector<SequenceRecord> SequencesOf(const AttentionProblem& problem,
                                        int32_t index, int tile_q);

// Orders records longest first, numbers their tiles and returns how many there
// are.
int64_t NumberTiles(std::vector<SequenceRecord>& records,
                    const std::vector<int32_t>& heads_of_problem);

}  // namespace attendant::kernels::sm90
