#include "session/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "session/reading.h"

namespace kedge::session {

namespace {

constexpr int kDefaultInterval = 64;  // tokens between evictions where the schedule names none
constexpr int64_t kLongestLayerMajor =
    32768;  // beyond it a row budget reads the prompt in chunks: hidden rows cost memory
constexpr double kLeastLayerMajorShare =
    0.5;                            // a byte budget gives up at most this part of its rows for the exact order
constexpr int64_t kTailShare = 8;   // quantised rows: f16 rows take at most 1/8 of a byte budget, if that is possible
constexpr int64_t kChunkShare = 8;  // a chunk's working space is at most 1/8 of the budget

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t row_blocks(int64_t rows) { return ceil_div(rows, kBlockRows); }

std::string text(const char* format, auto... args) {
  char out[512];
  std::snprintf(out, sizeof(out), format, args...);
  return out;
}

// Everything the steps below share.
struct Planner {
  const kv::StoreShape& shape;
  const Budget& budget;
  const eviction::Policy& policy;
  const Request& request;
  int ubatch_tokens;

  int64_t heads() const { return shape.n_kv_heads; }
  int64_t layers() const { return shape.n_layers; }
  int64_t block_bytes() const { return kv::block_bytes_total(shape); }
  // Quantised rows: the f16 tails, which stand beside the blocks that everything below counts.
  // A branch has tails of its own.
  int64_t tail_bytes() const { return kv::tail_bytes(shape, ubatch_tokens) * (request.branch_tokens == 0 ? 1 : 2); }
  int64_t full_bytes() const {
    kv::StoreShape full = shape;
    full.type = RowType::f16;
    return full_blocks(known_tokens()) * kv::block_bytes_total(full);
  }
  int64_t known_tokens() const { return request.prompt_tokens + std::max<int64_t>(request.generated_tokens, 0); }
  int64_t full_blocks(int64_t tokens) const { return layers() * heads() * row_blocks(tokens); }

  // Blocks of a layer that reads a chunk of n tokens: its rows, and those of the repetition that it may be read with.
  int64_t reading_blocks(int64_t n) const { return working_blocks(shape, n + probe_rows(n, request.probe_extra)); }

  eviction::ScheduleInfo schedule_info() const { return policy.schedule->info(); }
  int interval() const {
    const int every = schedule_info().every_n;
    return every > 0 ? every : kDefaultInterval;
  }
  int64_t fixed_rows() const { return session::fixed_rows(policy); }
  // Shares that are there when the last layer reads its rows. Layers of different sizes: the last may be the smallest,
  // and where layers share, rows of the others leave only when the last has been scored.
  int64_t shares_beside() const {
    return policy.allocator->layers() == eviction::Allocator::Layers::equal ? layers() - 1 : layers();
  }
  int64_t least_blocks_per_head() const { return row_blocks(fixed_rows() + 1); }
  int64_t least_total() const { return layers() * heads() * least_blocks_per_head() + reading_blocks(kBlockRows); }

  // Layers' shares that a branch leaves free for the copies of an eviction (plan_branch): the largest layer's, or all
  // where layers share a total and are evicted at once.
  int64_t copied_layers() const {
    if (policy.allocator->layers() == eviction::Allocator::Layers::shared)
      return layers();
    if (policy.allocator->layers() != eviction::Allocator::Layers::weighted)
      return 1;
    double largest = 0;
    double sum = 0;
    for (int l = 0; l < shape.n_layers; ++l) {
      const double weight = policy.allocator->layer_weight(l, shape.n_layers);
      largest = std::max(largest, weight);
      sum += weight;
    }
    return std::min<int64_t>(layers(), static_cast<int64_t>(std::ceil(largest * shape.n_layers / sum)) + 1);
  }
  // A layer's share of what a branch owns.
  int64_t branch_share(int64_t own_blocks) const {
    return std::max<int64_t>(0, own_blocks) / (layers() + copied_layers());
  }
  // Blocks for a branch of so many tokens: in each head a copy of the last block and the new rows, and what copies on
  // eviction need. Not known: as many as the marked rows.
  int64_t branch_wanted(int64_t if_not_known) const {
    if (request.branch_tokens == 0)
      return 0;
    // Quantised rows: room for those in the tail too, which a mark does not hold.
    const int64_t tails = shape.type.quantised() ? heads() * row_blocks(shape.f16_window + kBlockRows) : 0;
    return request.branch_tokens < 0
               ? if_not_known
               : (layers() + copied_layers()) * heads() * (row_blocks(request.branch_tokens) + 1) + tails;
  }
  // Of what may be given up for a branch. A policy that evicts nothing cannot do with less than all of it.
  int64_t branch_blocks(int64_t most) const {
    return policy.evicts ? std::min(branch_wanted(most), most) : branch_wanted(0);
  }
  // A branch fits as a whole, or can be evicted while 16 more rows are read.
  int64_t least_branch() const {
    const int64_t evicted =
        (layers() + copied_layers()) * heads() * least_blocks_per_head() + reading_blocks(kBlockRows);
    return policy.evicts ? std::min(branch_wanted(evicted), evicted) : branch_wanted(0);
  }

  int32_t growth(double rows_per_head) const {
    int64_t g = std::max<int64_t>(interval(), static_cast<int64_t>(rows_per_head * schedule_info().every_share));
    if (request.generated_tokens >= 0)
      g = std::min<int64_t>(g, request.generated_tokens);
    g = std::min<int64_t>(g, std::max<int64_t>(1, static_cast<int64_t>(rows_per_head / 4)));
    return static_cast<int32_t>(g);
  }

  Error impossible(int64_t total) const {
    int64_t least = std::min(least_total(), full_blocks(std::max<int64_t>(known_tokens(), 1)));
    // A branch gets at most half.
    least = std::max(least + branch_blocks(least), policy.evicts ? 2 * least_branch() : 0);
    const std::string branch = request.branch_tokens == 0 ? "" : " beside those of a branch";
    const std::string tails =
        tail_bytes() == 0 ? "" : text(" beside %lld bytes of f16 rows", static_cast<long long>(tail_bytes()));
    return {ErrorCode::budget_impossible,
            text("--kv-budget %s holds %lld blocks of %lld bytes (%d rows of one kv head)%s, but %lld layers x %lld kv "
                 "heads need at "
                 "least %lld each (%lld protected rows) and %lld to read the prompt: %lld blocks; the smallest budget "
                 "that works "
                 "here is %lldKiB",
                 budget.text.c_str(), static_cast<long long>(std::max<int64_t>(total, 0)),
                 static_cast<long long>(block_bytes()), kBlockRows, (branch + tails).c_str(),
                 static_cast<long long>(layers()), static_cast<long long>(heads()),
                 static_cast<long long>(least_blocks_per_head()), static_cast<long long>(fixed_rows() - 1),
                 static_cast<long long>(reading_blocks(kBlockRows)), static_cast<long long>(least),
                 static_cast<long long>(ceil_div(least * block_bytes() + tail_bytes(), 1024)))};
  }

  // The store is larger than the plan's targets by what a branch may hold beside them.
  Plan with_branch(Plan plan, int64_t blocks) const {
    plan.branch_blocks = blocks;
    plan.budget_bytes += blocks * block_bytes();
    if (blocks > 0)
      plan.line += text(", %s left for a branch", format_bytes(blocks * block_bytes()).c_str());
    return plan;
  }

  Plan everything_fits(int64_t total_blocks) const {
    Plan plan;
    plan.least_layer_blocks = heads() * least_blocks_per_head();
    plan.budget_bytes = total_blocks * block_bytes() + tail_bytes();
    plan.full_bytes = full_bytes();
    plan.chunk_tokens = request.n_batch;
    if (policy.evicts)
      set_targets(plan, total_blocks, total_blocks / layers(), total_blocks / layers());
    plan.rows_per_head = static_cast<double>(known_tokens());
    plan.line = "everything fits, nothing is evicted";
    return plan;
  }

  // Heads whose rows + growth fill n blocks hold n - growth / 16 of them at first: that is what the other layers have
  // to leave room for while the prompt is still being read.
  EvictionTarget after_chunk(int64_t chunk_blocks, int64_t later_blocks, int32_t g) const {
    return {.blocks = std::min(later_blocks, chunk_blocks + heads() * (g / kBlockRows)), .growth = g};
  }

  // Targets while decoding and after the prompt, given the blocks a layer may hold then and while the prompt is read.
  void set_targets(Plan& plan, int64_t total, int64_t prompt_blocks, int64_t later_blocks) const {
    const int32_t g = growth(static_cast<double>(later_blocks) * kBlockRows / static_cast<double>(heads()));
    plan.decoding = {.blocks = later_blocks, .growth = g, .most_tokens = request.prompt_tokens};
    plan.followup_chunk_tokens = chunk_for(total);
    plan.followup = {.blocks = (total - reading_blocks(plan.followup_chunk_tokens)) / layers()};
    plan.between_chunks = {.blocks = prompt_blocks, .most_tokens = request.prompt_tokens};
    const bool room_is_free = prompt_blocks + heads() * row_blocks(g) <= later_blocks;
    plan.after_prompt = plan.between_chunks;
    if (!room_is_free) {
      plan.after_prompt = after_chunk(prompt_blocks, later_blocks, g);
      plan.after_prompt.most_tokens = request.prompt_tokens;
    }
    plan.after_prompt = scaled(plan.after_prompt, policy.schedule->info().prompt_keep,
                               {.n_kv_heads = shape.n_kv_heads, .rows = fixed_rows()});
    const int64_t rows = plan.after_prompt.blocks * kBlockRows - heads() * plan.after_prompt.growth;
    plan.rows_per_head = static_cast<double>(rows) / static_cast<double>(heads());
  }

  void describe(Plan& plan) const {
    plan.line = plan.layer_major ? std::string("prompt layer by layer (exact)")
                                 : text("prompt in chunks of %d tokens", plan.chunk_tokens);
    plan.line += text(", %.0f rows per kv head kept", plan.rows_per_head);
    if (request.prompt_tokens > 0) {
      plan.line += text(" of %lld (%.1f %%)", static_cast<long long>(request.prompt_tokens),
                        100 * std::min(1.0, plan.rows_per_head / static_cast<double>(request.prompt_tokens)));
    }
    if (!request.hold_continuation && plan.decoding.growth > 0)
      plan.line += text(", evicted every %d tokens while decoding", plan.decoding.growth);
  }

  int chunk_for(int64_t total) const {
    const int64_t spare = total - layers() * heads() * least_blocks_per_head();
    const int64_t rows = (std::min(total / kChunkShare, spare) / heads() - 1) * kBlockRows;
    int64_t chunk = rows;
    if (request.probe_extra > 0)  // n rows and the repetition's min(n, kProbeTokens) + probe_extra
      chunk = std::max((rows - request.probe_extra) / 2, rows - request.probe_extra - kProbeTokens);
    chunk = std::clamp<int64_t>(chunk, kBlockRows, request.n_batch);
    return static_cast<int>(chunk >= 64 ? chunk / 64 * 64 : chunk / kBlockRows * kBlockRows);
  }

  Result<Plan> for_bytes() const {
    const int64_t all = (static_cast<int64_t>(budget.value) - tail_bytes()) / block_bytes();
    const int64_t branch = branch_blocks(all / 2);
    Result<Plan> plan = for_blocks(all - branch);
    if (!plan)
      return plan;
    if (branch < least_branch())
      return impossible(all - branch);
    return with_branch(*std::move(plan), branch);
  }

  Result<Plan> for_blocks(int64_t total) const {
    if (full_blocks(std::max<int64_t>(known_tokens(), 1)) <= total &&
        (request.generated_tokens >= 0 || !policy.evicts)) {
      return everything_fits(total);
    }
    if (!policy.evicts || total < least_total())
      return impossible(total);
    Plan plan;
    plan.least_layer_blocks = heads() * least_blocks_per_head();
    plan.evicts = full_blocks(request.prompt_tokens + 1) > total;
    plan.budget_bytes = total * block_bytes() + tail_bytes();
    plan.full_bytes = full_bytes();
    const int64_t later = total / layers();
    const int64_t working = reading_blocks(request.prompt_tokens);
    const int64_t exact = shares_beside() > 0 ? std::min(later, (total - working) / shares_beside()) : 0;
    const double share = static_cast<double>(exact) / static_cast<double>(later);
    const bool possible = working < total && exact >= heads() * least_blocks_per_head();
    plan.layer_major = possible && request.order != PrefillOrder::chunked &&
                       (request.order == PrefillOrder::layer_major || share >= kLeastLayerMajorShare);
    if (request.order == PrefillOrder::layer_major && !possible)
      return impossible(total);
    plan.chunk_tokens = plan.layer_major ? static_cast<int>(request.prompt_tokens) : chunk_for(total);
    const int64_t chunked = (total - reading_blocks(plan.chunk_tokens)) / layers();
    if (!plan.layer_major && chunked < heads() * least_blocks_per_head())
      return impossible(total);
    set_targets(plan, total, plan.layer_major ? exact : chunked, later);
    if (plan.evicts) {
      describe(plan);
    } else {
      plan.chunk_tokens = request.n_batch;
      plan.line = "the prompt fits; evicted when the budget is full";
    }
    return plan;
  }

  Result<Plan> for_rows() const {
    const bool hold = request.hold_continuation;
    const int64_t counted = hold ? request.prompt_tokens : known_tokens();
    double rows = budget.kind == Budget::Kind::share ? budget.value * static_cast<double>(counted) : budget.value;
    const bool cold = policy.evicts && known_tokens() <= policy.cold_start_tokens && request.generated_tokens >= 0;
    if (counted > 0 && (rows >= static_cast<double>(counted) || cold)) {
      int64_t tokens = std::max<int64_t>(known_tokens(), 1);
      if (budget.kind == Budget::Kind::rows && !hold)
        tokens = std::max(tokens, static_cast<int64_t>(rows));  // later turns may use them
      return everything_fits(full_blocks(tokens));
    }
    if (!policy.evicts)
      return impossible(static_cast<int64_t>(rows * static_cast<double>(heads() * layers()) / kBlockRows));
    rows = std::max(1.0, std::floor(rows + 1e-9));
    Plan plan;
    plan.evicts = true;
    plan.least_layer_blocks = heads() * least_blocks_per_head();
    plan.full_bytes = full_bytes();
    const int64_t wanted = std::llround(rows) * heads();
    int64_t share = std::max(ceil_div(wanted, kBlockRows), heads() * (hold ? 1 : least_blocks_per_head()));
    if (hold)
      share += heads() * (row_blocks(std::max<int64_t>(request.generated_tokens, 1)) + 1);
    plan.layer_major = request.order != PrefillOrder::chunked && request.prompt_tokens <= kLongestLayerMajor;
    plan.chunk_tokens = plan.layer_major
                            ? static_cast<int>(request.prompt_tokens)
                            : std::min<int>(request.n_batch, std::max<int>(64, static_cast<int>(rows) / 64 * 64));
    int64_t total = layers() * share + reading_blocks(plan.chunk_tokens);
    if (plan.layer_major)
      total = std::max(layers() * share, shares_beside() * share + reading_blocks(request.prompt_tokens));
    plan.budget_bytes = total * block_bytes() + tail_bytes();
    set_targets(plan, total, share, share);
    if (hold) {
      plan.after_prompt =
          plan.between_chunks = {.blocks = share, .rows_exact = wanted, .most_tokens = request.prompt_tokens};
      plan.rows_per_head = rows;
    }
    describe(plan);
    return plan;
  }

  Result<Plan> plan() const {
    if (budget.kind == Budget::Kind::unlimited) {
      const int64_t tokens = std::max<int64_t>({request.n_ctx, known_tokens(), 1});
      const int64_t probe = probe_rows(tokens, request.probe_extra);
      const int64_t all = full_blocks(tokens) + (probe > 0 ? working_blocks(shape, probe) : 0);
      return everything_fits(request.branch_tokens == 0 ? all : 2 * all);  // address space, until it is used
    }
    if (budget.kind == Budget::Kind::bytes)
      return for_bytes();
    Result<Plan> plan = for_rows();
    if (!plan)
      return plan;
    // A branch comes on top of rows.
    const int64_t rows = std::max((plan->budget_bytes - tail_bytes()) / block_bytes(), least_branch());
    return with_branch(*std::move(plan), branch_blocks(rows));
  }
};

}  // namespace

int64_t probe_rows(int64_t n, int64_t extra) { return extra > 0 ? std::min(n, kProbeTokens) + extra : 0; }

int64_t fixed_rows(const eviction::Policy& policy) {
  const int64_t sinks = policy.sinks.is_share ? 0 : std::llround(policy.sinks.value);
  const int64_t recent = policy.recent.is_share ? 0 : std::llround(policy.recent.value);
  return sinks + recent + 1;
}

int64_t working_blocks(const kv::StoreShape& shape, int64_t n_rows) {
  return shape.n_kv_heads * (row_blocks(std::max<int64_t>(n_rows, 1)) + 1);
}

int64_t reading_blocks(const kv::StoreShape& shape, const Plan& plan, int64_t n) {
  return working_blocks(shape, n + probe_rows(n, plan.probe_extra));
}

int64_t planned_blocks(const kv::StoreShape& shape, const Plan& plan) {
  if (plan.own_blocks > 0)
    return plan.own_blocks;
  return (plan.budget_bytes - plan.tail_bytes) / kv::block_bytes_total(shape) - plan.branch_blocks;
}

// What f16 rows may take of a byte budget of quantised rows. As asked where everything fits so; else a smaller ubatch,
// then a smaller window, until they take an eighth, or nothing is left to give.
F16Rows f16_rows_for(kv::StoreShape shape, const Budget& budget, const eviction::Policy& policy,
                     const Request& request) {
  F16Rows rows{.ubatch_tokens = request.n_ubatch, .window = shape.f16_window};
  if (budget.kind != Budget::Kind::bytes || !shape.type.quantised())
    return rows;
  const auto budget_bytes = static_cast<int64_t>(budget.value);
  const Planner asked{shape, budget, policy, request, rows.ubatch_tokens};
  const int64_t full = asked.full_blocks(std::max<int64_t>(asked.known_tokens(), 1)) * asked.block_bytes();
  if (request.generated_tokens >= 0 && full + asked.tail_bytes() <= budget_bytes)
    return rows;
  const int64_t least = std::min(asked.least_total(), asked.full_blocks(std::max<int64_t>(asked.known_tokens(), 1)));
  const int64_t most = std::min(budget_bytes / kTailShare, budget_bytes - least * asked.block_bytes());
  const auto too_large = [&] {
    shape.f16_window = rows.window;
    return Planner{shape, budget, policy, request, rows.ubatch_tokens}.tail_bytes() > most;
  };
  const auto halve_ubatch = [&](int at_least) {
    while (rows.ubatch_tokens > at_least && too_large())
      rows.ubatch_tokens = std::max(at_least, rows.ubatch_tokens / 2);
  };
  halve_ubatch(64);
  while (rows.window > 0 && too_large())
    rows.window -= kBlockRows;
  halve_ubatch(kBlockRows);
  return rows;
}

Result<Plan> make_plan(const kv::StoreShape& shape, const Budget& budget, const eviction::Policy& policy,
                       const Request& request) {
  const F16Rows f16_rows = f16_rows_for(shape, budget, policy, request);
  kv::StoreShape planned = shape;
  planned.f16_window = f16_rows.window;
  const Planner planner{planned, budget, policy, request, f16_rows.ubatch_tokens};
  Result<Plan> plan = planner.plan();
  if (!plan)
    return plan;
  plan->f16_rows = f16_rows;
  plan->tail_bytes = planner.tail_bytes();
  plan->probe_extra = request.probe_extra;
  plan->token_bytes = static_cast<int64_t>(row_bytes(shape.head_dim, shape.type)) * shape.n_layers * shape.n_kv_heads;
  if (budget.kind != Budget::Kind::unlimited && plan->evicts && request.overflow == Overflow::error) {
    const int64_t rows_bytes = plan->budget_bytes - planner.tail_bytes();
    const int64_t fits = rows_bytes / planner.block_bytes() / (planner.layers() * planner.heads()) * kBlockRows;
    return Error{
        ErrorCode::context_too_long,
        text("the prompt has %lld tokens, --kv-budget %s holds %lld and --kv-overflow is 'error'",
             static_cast<long long>(request.prompt_tokens), budget.text.c_str(), static_cast<long long>(fits))};
  }
  return plan;
}

Plan plan_branch(const kv::StoreShape& shape, const eviction::Policy& policy, const Request& request, const Plan& plan,
                 int64_t own_blocks) {
  Request branch = request;
  branch.generated_tokens = request.branch_tokens > 0 ? request.branch_tokens : -1;
  const Budget unused;
  const Planner planner{shape, unused, policy, branch, plan.f16_rows.ubatch_tokens};
  const int64_t share = planner.branch_share(own_blocks);
  Plan out = plan;
  if (!policy.evicts)
    return out;
  planner.set_targets(out, own_blocks, share, share);
  out.followup.blocks = planner.branch_share(own_blocks - planner.reading_blocks(out.followup_chunk_tokens));
  out.own_blocks = std::max<int64_t>(1, share * shape.n_layers);
  return out;
}

}  // namespace kedge::session
