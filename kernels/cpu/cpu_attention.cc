#include "kernels/cpu/cpu_attention.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/decode_attention.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/partial_slots.h"
#include "kernels/cpu/row_output.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/tile_attention.h"
#include "kernels/cpu/work_split.h"

namespace attendant::kernels::cpu {
namespace {

int64_t AlignFloats(int64_t floats) { return (floats + 63) / 64 * 64; }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Batch entries of one shape. Its tasks are numbered by batch entry, KV heads,
// row task and split, the last fastest.
struct Unit {
  const AttentionProblem* problem;
  int64_t b_begin, b_end;
  WorkSplit split;
  int64_t first_task;

  int64_t head_tasks() const {
    return CeilDiv(problem->num_kv_heads, split.heads_per_task);
  }
  int64_t num_tasks() const {
    return (b_end - b_begin) * head_tasks() * split.row_tasks * split.splits;
  }
};

struct Memory {
  int64_t scratch = 0;  // floats of each thread
  int64_t slot = 0;     // floats of each group of split tasks

  void Cover(const Unit& unit) {
    const AttentionProblem& problem = *unit.problem;
    const WorkSplit& split = unit.split;
    if (unit.num_tasks() == 0) return;
    int64_t floats = split.form == Form::kDecode
                         ? DecodeScratchFloats(problem, split.heads_per_task)
                         : TileScratchFloats(problem, split.rows_per_task);
    if (split.splits > 1) {
      floats = std::max(floats, problem.head_dim_v);
      slot =
          std::max(slot, AlignFloats(split.heads_per_task * split.splits *
                                     std::min(split.rows, split.rows_per_task) *
                                     PartialPitch(problem)));
    }
    scratch = std::max(scratch, AlignFloats(floats));
  }
  int64_t bytes(int num_threads) const {
    return sizeof(float) * num_threads * (scratch + slot);
  }
};

class CpuPlan final : public KernelPlan {
 public:
  CpuPlan(int num_threads, std::span<const AttentionProblem* const> problems)
      : num_threads_(std::max(1, num_threads)) {
    for (const AttentionProblem* problem : problems) {
      Memory alone;
      const int64_t shapes = problem->sequences.size() == 1
                                 ? std::min<int64_t>(1, problem->batch)
                                 : problem->batch;
      for (int64_t b = 0; b < shapes; ++b) {
        AddUnit(*problem, b, shapes == 1 ? problem->batch : b + 1, &alone);
      }
      bytes_of_.push_back(alone.bytes(num_threads_));
    }
  }

  int64_t workspace_bytes() const override {
    return memory_.bytes(num_threads_);
  }
  int64_t workspace_bytes_of(size_t index) const override {
    return bytes_of_[index];
  }

  absl::Status Launch(const LaunchContext& context) const override {
    if (num_tasks_ == 0) return absl::OkStatus();
    const int threads =
        context.thread_pool == nullptr ? 1 : context.thread_pool->num_threads();
    if (threads > num_threads_) {
      return absl::InvalidArgumentError(
          absl::StrCat("thread_pool has ", threads,
                       " threads, the plan was made for ", num_threads_));
    }
    if (context.workspace == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "workspace is null, the plan needs ", workspace_bytes(), " bytes"));
    }
    float* const scratch = static_cast<float*>(context.workspace);
    PartialSlots slots(scratch + num_threads_ * memory_.scratch, memory_.slot,
                       num_threads_);
    const SimdKernels& simd = ActiveSimdKernels();
    const auto run = [&](int64_t task, int thread) {
      RunTask(simd, task, scratch + thread * memory_.scratch, context.unwanted,
              slots);
    };
    if (context.thread_pool == nullptr) {
      for (int64_t task = 0; task < num_tasks_; ++task) run(task, 0);
    } else {
      context.thread_pool->ParallelFor(
          num_tasks_, run, [this](int64_t task) { return FirstOfHeads(task); });
    }
    if (context.unwanted != nullptr && (*context.unwanted)()) {
      return absl::CancelledError("the results are not wanted any more");
    }
    return absl::OkStatus();
  }

 private:
  void AddUnit(const AttentionProblem& problem, int64_t b_begin, int64_t b_end,
               Memory* alone) {
    Unit unit{&problem, b_begin, b_end,
              SplitWork(problem, problem.sequence(b_begin), num_threads_),
              num_tasks_};
    if (unit.num_tasks() == 0) return;
    num_tasks_ += unit.num_tasks();
    memory_.Cover(unit);
    alone->Cover(unit);
    units_.push_back(unit);
  }

  const Unit& UnitOf(int64_t number) const {
    const auto after = std::upper_bound(
        units_.begin(), units_.end(), number,
        [](int64_t n, const Unit& unit) { return n < unit.first_task; });
    return *std::prev(after);
  }

  // The first of the tasks that read the same K and V.
  int64_t FirstOfHeads(int64_t number) const {
    const Unit& unit = UnitOf(number);
    const int64_t tasks = unit.split.row_tasks * unit.split.splits;
    return number - (number - unit.first_task) % tasks;
  }

  void RunTask(const SimdKernels& simd, int64_t number, float* scratch,
               const std::function<bool()>* unwanted,
               PartialSlots& slots) const {
    const Unit& unit = UnitOf(number);
    const WorkSplit& split = unit.split;
    int64_t index = number - unit.first_task;
    const int64_t part = index % split.splits;
    const int64_t group = number - part;
    index /= split.splits;
    // The last rows first: with a causal mask they are the longest tasks.
    const int64_t row_task = split.row_tasks - 1 - index % split.row_tasks;
    index /= split.row_tasks;
    AttentionTask task;
    task.problem = unit.problem;
    task.kv_head = index % unit.head_tasks() * split.heads_per_task;
    task.b = unit.b_begin + index / unit.head_tasks();
    task.row_begin = row_task * split.rows_per_task;
    task.row_end = std::min(split.rows, task.row_begin + split.rows_per_task);
    task.key_begin = part * split.chunk;
    task.key_end =
        std::min(task.sequence().len_kv, task.key_begin + split.chunk);
    task.partial = nullptr;
    task.unwanted = unwanted;
    if (split.splits == 1) {
      if (!task.IsUnwanted()) Attend(simd, task, split, 0, scratch);
      return;
    }

    // Unwanted or not: a slot is free again when all of its group have left.
    // Of each head the parts lie one behind the other.
    float* const partials = slots.Enter(group, split.splits);
    const int64_t part_floats =
        (task.row_end - task.row_begin) * PartialPitch(*task.problem);
    const int64_t head_floats = split.splits * part_floats;
    task.partial = partials + part * part_floats;
    Attend(simd, task, split, head_floats, scratch);
    if (slots.Leave(group)) {
      float* of_head = partials;
      for (const int64_t end = EndOfHeads(task, split); task.kv_head < end;
           ++task.kv_head, of_head += head_floats) {
        MergePartials(simd, task, of_head, split.splits, scratch);
      }
      slots.Release(group);
    }
  }

  static int64_t EndOfHeads(const AttentionTask& first,
                            const WorkSplit& split) {
    return std::min(first.problem->num_kv_heads,
                    first.kv_head + split.heads_per_task);
  }

  // The task and those of the next heads, whose partial results lie
  // `head_floats` apart.
  static void Attend(const SimdKernels& simd, const AttentionTask& task,
                     const WorkSplit& split, int64_t head_floats,
                     float* scratch) {
    if (split.form == Form::kTile) {
      return TileAttention(simd, task, split.rows_per_task, scratch);
    }
    std::vector<AttentionTask> tasks;
    AttentionTask of_head = task;
    for (const int64_t end = EndOfHeads(task, split); of_head.kv_head < end;
         ++of_head.kv_head) {
      tasks.push_back(of_head);
      if (of_head.partial != nullptr) of_head.partial += head_floats;
    }
    DecodeAttention(simd, tasks, scratch);
  }

  const int num_threads_;
  std::vector<Unit> units_;
  std::vector<int64_t> bytes_of_;
  Memory memory_;
  int64_t num_tasks_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelPlan>> Plan(
    const DeviceProperties& device,
    std::span<const AttentionProblem* const> problems) {
  return std::make_unique<CpuPlan>(device.num_sms, problems);
}

}  // namespace attendant::kernels::cpu
