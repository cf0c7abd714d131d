// Everything the command line can say, in one plain struct. Filled by options.h, read by the verbs, never changed
// after.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kedge::cli {

struct Settings {
  // Model and machine
  std::string model;
  int ctx_size = 0;
  int threads = 0;
  int batch_size = 2048;
  int ubatch_size = 512;
  std::string kernels = "auto";
  std::string prompt_weights = "auto";
  std::string mmap = "auto";
  std::string gate;
  std::string gate_mode;
  std::string lora;
  float lora_scale = 1.0F;
  std::string cache_type_k = "f16";
  std::string cache_type_v = "f16";
  int kv_f16_window = 32;

  // What to read and how long to answer. Not given and empty are different things.
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  int predict = -1;
  bool chat = false;
  bool interactive = false;
  std::string system;
  std::string chat_template;

  // Sessions
  std::string session;
  bool session_ro = false;
  bool append = false;
  std::vector<std::string> questions;
  std::string questions_file;
  std::optional<int64_t> kv_branch;

  // Sampling
  std::optional<int64_t> seed;
  float temperature = 0.8F;
  int top_k = 40;
  float top_p = 0.95F;
  float min_p = 0.05F;
  float repeat_penalty = 1.0F;
  int repeat_last_n = 64;
  float length_penalty = 1.0F;
  std::string preset = "none";

  // The KV budget
  std::string kv_budget;
  std::string kv_policy;
  std::string kv_sinks;
  std::string kv_recent;
  std::string kv_overflow = "evict";
  std::string prefill_order = "auto";
  std::string kv_protect;
  std::string kv_protect_overflow = "error";
  std::string kv_domain;
  std::string kv_pin;
  bool kv_pin_system = false;
  int kv_special_quota = 0;
  float kv_time_limit = 0;

  // Reports
  std::string stats;
  std::string kv_map;
  int explain = 0;
  std::string explain_json;
  std::string explain_at;
  bool json = false;
  bool domains = false;
  std::string progress = "auto";
  bool verbose = false;
  std::string log_file;
  std::string config;

  // perplexity
  int context = 1024;
  int continuation = 128;
  int samples = 8;
  std::string offsets;
  bool kl_divergence = false;

  // eval
  std::string eval_policies = "echo";
  std::string eval_budgets = "50%,25%,10%";
  std::string lengths = "1024";
  std::string depths = "0%,25%,50%,75%,100%";
  int eval_samples = 3;
  std::string out;
  bool no_controls = false;
  bool question_agnostic = false;
  bool decode_evicts = false;
  bool skip_bad = false;
  bool no_share = false;
  bool dry_run = false;
  bool export_samples = false;
  std::string save_logits;
  std::string reference = "self";
  int noise_windows = 4;
  int prefix_cache_mib = 1024;
  float match_quality = 0;
  float match_kld = 0;
  std::string baseline;
  float max_drop = 0.02F;
  float max_kld_rise = 0.25F;

  // inspect
  int prompt_tokens = 0;

  // report
  std::string html = "report.html";
  std::string figures;

  // train-gate
  std::string gate_out;
  std::string held_out;
  std::string gate_label = "both";
  std::string gate_input = "window";
  std::string gate_label_norm = "value";
  std::string train_lengths = "1024";
  int train_tokens = 200'000;
  float train_share = 0.25F;
  int gate_window = 32;
  int gate_width = 80;
  int gate_epochs = 4;
  std::string stage = "labels";
  std::string gate_init;
  int lm_steps = 400;
  int lm_batch = 1;
  std::string lm_loss = "kl";
  float lm_keep = 0.25F;
  std::string lm_pressure = "exact";
  std::string lm_rows = "own";
  std::string lm_learns = "append";
  float lm_lambda = 10;
  float lm_adversarial = 0.25F;
  float lm_rate = 1e-3F;
  int lm_lora = 0;
  float lm_lora_rate = 3e-4F;
  std::string lm_recompute = "auto";
  std::string lm_products = "auto";
  int lm_save_every = 10;
  int lm_judge_every = 50;
  int lm_judge_windows = 8;
  int lm_patience = 6;

  // bench: lists as llama-bench writes them (apps/bench/lists.h)
  std::string bench_prompts = "512";
  std::string bench_gens = "128";
  std::string bench_pairs;
  std::string bench_depths = "0";
  std::string bench_threads = "0";
  std::string bench_batches = "2048";
  std::string bench_ubatches = "512";
  std::string bench_cache_k = "f16";
  std::string bench_cache_v = "f16";
  std::string bench_budgets = "none";
  std::string bench_policies = "echo";
  int bench_repetitions = 5;
  int bench_delay = 0;
  bool bench_no_warmup = false;
  std::string bench_output = "md";
  std::string bench_vs;

  bool help = false;
  std::vector<std::string> positional;
  std::vector<std::string> args;  // all that stood after the verb, for a program that goes on with the same
};

}  // namespace kedge::cli
