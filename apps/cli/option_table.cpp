// The rows of the options table. A new flag is one row here and one field in settings.h.
#include "options.h"

namespace kedge::cli {
namespace {

constexpr unsigned kModel = kRun | kPerplexity | kInspect;
constexpr unsigned kCompute = kRun | kPerplexity;
constexpr unsigned kEngine = kModel | kEval;
constexpr unsigned kMeasure = kCompute | kEval;
constexpr unsigned kAll = kModel | kPolicies | kEval | kBench | kReport | kTrain;

// Options that are no numbers have no range.
constexpr double kAny = std::numeric_limits<double>::lowest();
constexpr double kAnyMax = std::numeric_limits<double>::max();

constexpr const char* kGroupInput = "Input and output";
constexpr const char* kGroupSessions = "Sessions";
constexpr const char* kGroupModel = "Model and machine";
constexpr const char* kGroupBudget = "KV budget";
constexpr const char* kGroupSampling = "Sampling";
constexpr const char* kGroupWindows = "Windows";
constexpr const char* kGroupGrid = "Grid";
constexpr const char* kGroupBench = "Tests of bench";
constexpr const char* kGroupTraining = "Training";
constexpr const char* kGroupTrainingLm = "Training on the language-model loss";
constexpr const char* kGroupReports = "Reports and logs";

constexpr OptionSpec kTable[] = {
    // Input and output
    {"-p", "--prompt", "TEXT", kGroupInput, kRun, &Settings::prompt,
     "text to complete; with --chat or --interactive the first user message"},
    {"-f", "--file", "FILE", kGroupInput, kMeasure, &Settings::file,
     "read the text from FILE (plain or gzip, - is standard input); run with -p too: the file comes first, then the "
     "prompt"},
    {"-n", "--predict", "N", kGroupInput, kRun | kInspect, &Settings::predict,
     "tokens to generate; -1: until end of generation or the context is full", -1, 1e9},
    {"", "--chat", "", kGroupInput, kRun | kEval, &Settings::chat,
     "apply the chat template to the prompt as one user message"},
    {"-i", "--interactive", "", kGroupInput, kRun, &Settings::interactive,
     "chat on the terminal; /quit or end of file leaves, Ctrl-C stops an answer, twice exits; /save FILE, /load FILE, "
     "/rewind (takes the last turn back)"},
    {"", "--system", "TEXT", kGroupInput, kRun, &Settings::system, "system message of --chat and --interactive"},
    {"", "--chat-template", "NAME", kGroupInput, kRun, &Settings::chat_template,
     "a built-in template of libllama instead of the model's own"},

    // Sessions
    {"", "--session", "FILE", kGroupSessions, kRun, &Settings::session,
     "go on from FILE where it is there, and save to it at the end; what the prompt repeats of it is not read again"},
    {"", "--session-ro", "", kGroupSessions, kRun, &Settings::session_ro, "use --session, but do not write to it"},
    {"", "--append", "", kGroupSessions, kRun, &Settings::append,
     "with --session: the prompt follows what FILE holds, instead of repeating it from the start"},
    {"", "--question", "TEXT", kGroupSessions, kRun, &Settings::questions,
     "answer TEXT after the prompt, then go back to the prompt's end for the next one; may be given several times"},
    {"", "--questions", "FILE", kGroupSessions, kRun, &Settings::questions_file,
     "questions, one on a line (- is standard input); after those of --question"},
    {"", "--kv-branch", "N", kGroupSessions, kRun, &Settings::kv_branch,
     "room in the budget for N tokens that are taken back (questions, /rewind); -1: as much as for the rest; not "
     "given: what the longest question and --predict need, else 0",
     -1, 1e9},

    // Model and machine
    {"-m", "--model", "FILE", kGroupModel, kEngine | kBench | kTrain, &Settings::model, "the model, a GGUF file"},
    {"-c", "--ctx-size", "N", kGroupModel, kEngine, &Settings::ctx_size,
     "most tokens of prompt and answer together; 0: what the model was trained to, or more where the budget evicts", 0,
     1e9},
    {"-t", "--threads", "N", kGroupModel, kEngine | kTrain, &Settings::threads,
     "threads; 0: one per CPU this process may use", -1, 4096},
    {"-b", "--batch-size", "N", kGroupModel, kEngine, &Settings::batch_size,
     "most tokens of a chunk where the prompt is read in chunks", 1, 1e9},
    {"-ub", "--ubatch-size", "N", kGroupModel, kEngine, &Settings::ubatch_size, "tokens of one graph", 1, 1e9},
    {"", "--kernels", "SET", kGroupModel, kEngine | kBench, &Settings::kernels, "attention kernels", kAny, kAnyMax,
     "auto|ref|avx2|avx512|avx512vnni|avx512bf16"},
    {"", "--prompt-weights", "TYPE", kGroupModel, kEngine | kBench, &Settings::prompt_weights,
     "how matrix products of a prompt read the weights", kAny, kAnyMax, "auto|native|f32|bf16"},
    {"", "--mmap", "WHEN", kGroupModel, kEngine | kBench, &Settings::mmap,
     "read the weights from the file's pages, which processes share, or (off, llama.cpp's --no-mmap) from a copy in "
     "huge pages, which is faster; auto: a copy where huge pages are granted and half of the free memory is enough",
     kAny, kAnyMax, "auto|on|off"},
    {"", "--gate", "FILE", kGroupModel, kEngine, &Settings::gate,
     "GGUF of a discard gate that was trained for the model; policies `gate` ask it"},
    {"", "--lora", "FILE", kGroupModel, kEngine | kBench, &Settings::lora,
     "GGUF of a LoRA adapter of the model, in llama.cpp's format"},
    {"", "--lora-scale", "S", kGroupModel, kEngine | kBench, &Settings::lora_scale,
     "what the adapter's part is multiplied with", -1000, 1000},
    {"", "--gate-mode", "MODE", kGroupBudget, kModel, &Settings::gate_mode,
     "what the gate decides: nothing but ranks (budget), or rows below a keep probability go once they leave the "
     "window: `threshold:at=0.5`, or `adaptive:low=0.2,high=0.8`, whose threshold rises as memory fills; not given: "
     "budget"},

    // KV budget
    {"", "--kv-budget", "BUDGET", kGroupBudget, kModel, &Settings::kv_budget,
     "hard limit of the KV store: 512MiB (bytes), 25% (of the full cache of this request) or 2048tok (rows per kv "
     "head); not given: no limit"},
    {"", "--kv-policy", "POLICY", kGroupBudget, kModel, &Settings::kv_policy,
     "SCORER[:k=v,...][/ALLOCATOR[:k=v,...]][/SCHEDULE[:k=v,...]], see `kedge policies`; not given: with a budget "
     "echo, or gate where --gate names one that ranks the rows of all heads; without a budget none"},
    {"", "--kv-sinks", "N", kGroupBudget, kModel | kBench, &Settings::kv_sinks,
     "first rows that are never evicted; not given: the policy's default"},
    {"", "--kv-recent", "N|P%", kGroupBudget, kModel | kBench, &Settings::kv_recent,
     "newest rows that are never evicted, as rows or a share of the budget; not given: the policy's default"},
    {"", "--kv-overflow", "WHAT", kGroupBudget, kModel, &Settings::kv_overflow,
     "when the tokens do not fit the budget: evict rows, end with an error, or truncate the prompt", kAny, kAnyMax,
     "evict|error|truncate"},
    {"", "--kv-time-limit", "MS", kGroupBudget, kCompute, &Settings::kv_time_limit,
     "milliseconds for an eviction of all layers; layers that would take longer than their part keep sinks and recent "
     "rows, and are counted; results then depend on the machine's speed; 0: no limit",
     0, 1e9},
    {"", "--prefill-order", "ORDER", kGroupBudget, kModel | kBench, &Settings::prefill_order,
     "how a prompt is read: every layer in full before it is evicted (exact), or in chunks (any length in any budget)",
     kAny, kAnyMax, "auto|layer-major|chunked"},
    {"", "--kv-protect", "FILE", kGroupBudget, kMeasure, &Settings::kv_protect,
     "words and phrases, one a line, whose rows are never evicted (# comments; `case: ` in front: upper and lower case "
     "differ)"},
    {"", "--kv-protect-overflow", "WHAT", kGroupBudget, kMeasure, &Settings::kv_protect_overflow,
     "when pinned tokens and phrases exceed the budget: end with an error, or give up the oldest of them", kAny,
     kAnyMax, "error|oldest"},
    {"", "--kv-domain", "NAME|FILE", kGroupBudget, kMeasure, &Settings::kv_domain,
     "protect what matters in one kind of text, within shares of the budget: code, dialogue, tables (`kedge policies "
     "--domains`), or a definition of your own"},
    {"", "--kv-pin", "LIST", kGroupBudget, kRun, &Settings::kv_pin,
     "tokens of the prompt whose rows are never evicted, as in 0-63,500-519"},
    {"", "--kv-pin-system", "", kGroupBudget, kRun | kEval, &Settings::kv_pin_system,
     "with --chat or --interactive: never evict what stands before the first message of the user"},
    {"", "--kv-special-quota", "N", kGroupBudget, kMeasure, &Settings::kv_special_quota,
     "protect the newest N tokens of each special kind (markers of chat templates), within a quarter of the budget", 0,
     1e6},
    {"-ctk", "--cache-type-k", "TYPE", kGroupBudget, kEngine, &Settings::cache_type_k,
     "type of key rows; q8_0 and q4_0 (or q8 and q4) are Kedge's own formats: docs/kv-types.md", kAny, kAnyMax,
     "f16|bf16|q8_0|q4_0|q8|q4"},
    {"-ctv", "--cache-type-v", "TYPE", kGroupBudget, kEngine, &Settings::cache_type_v, "type of value rows", kAny,
     kAnyMax, "f16|bf16|q8_0|q4_0|q8|q4"},
    {"", "--kv-f16-window", "N", kGroupBudget, kEngine | kBench, &Settings::kv_f16_window,
     "with quantised rows: newest rows of each head that stay in f16, a multiple of 16", 0, 65536},

    // Sampling
    {"-s", "--seed", "N", kGroupSampling, kMeasure, &Settings::seed,
     "seed of sampling, of windows and samples, and of the policy `random`; -1 or not given: random for run, else 0",
     -1, 4294967295.0},
    {"", "--temp", "T", kGroupSampling, kRun, &Settings::temperature, "temperature; 0: always the likeliest token", -1,
     1e6},
    {"", "--top-k", "N", kGroupSampling, kRun, &Settings::top_k, "sample from the N likeliest tokens; 0: off", 0, 1e9},
    {"", "--top-p", "P", kGroupSampling, kRun, &Settings::top_p, "from the likeliest tokens that sum to P; 1: off", 0,
     1},
    {"", "--min-p", "P", kGroupSampling, kRun, &Settings::min_p,
     "from tokens at least P times as likely as the likeliest; 0: off", 0, 1},
    {"", "--repeat-penalty", "X", kGroupSampling, kRun, &Settings::repeat_penalty, "penalty of repeated tokens; 1: off",
     0, 1e6},
    {"", "--repeat-last-n", "N", kGroupSampling, kRun, &Settings::repeat_last_n, "tokens that the penalty looks back",
     0, 1e9},
    {"", "--length-penalty", "X", kGroupSampling, kRun, &Settings::length_penalty,
     "divide the odds of ending the answer by X at each token; above 1: longer answers; 1: off", 0.01, 100},
    {"", "--preset", "NAME", kGroupSampling, kRun, &Settings::preset,
     "values for options above that are given nowhere else; compressed: --temp 0.5 --repeat-penalty 1.2 "
     "--length-penalty 1.1 (docs/presets.md)",
     kAny, kAnyMax, "none|compressed"},

    // perplexity's windows
    {"", "--context", "N", kGroupWindows, kPerplexity, &Settings::context, "prompt tokens of a window", 1, 1e9},
    {"", "--continue", "M", kGroupWindows, kPerplexity | kEval, &Settings::continuation,
     "tokens after the prompt, scored teacher-forced", 1, 1e6},
    {"", "--samples", "S", kGroupWindows, kPerplexity, &Settings::samples,
     "windows, at distinct offsets drawn uniformly with --seed (SplitMix64); the same for every policy", 1, 1e6},
    {"", "--offsets", "T1,T2,...", kGroupWindows, kPerplexity, &Settings::offsets,
     "windows that start at these tokens of the text, instead of --samples"},
    {"", "--kl-divergence", "", kGroupWindows, kPerplexity, &Settings::kl_divergence,
     "compare every scored token with the full cache"},

    // eval's grid
    {"", "--kv-policy", "LIST", kGroupGrid, kEval, &Settings::eval_policies,
     "policies, as in echo,snapkv:pool=7,streaming; see `kedge policies`"},
    {"", "--kv-budget", "LIST", kGroupGrid, kEval, &Settings::eval_budgets,
     "budgets, as in 50%,25% (of each prompt), 256tok (rows per kv head) or 16MiB"},
    {"", "--lengths", "LIST", kGroupGrid, kEval, &Settings::lengths, "tokens of a prompt, as in 512,1024,2k"},
    {"", "--depths", "LIST", kGroupGrid, kEval, &Settings::depths,
     "where in the prompt the answer lies, for tasks that have one place"},
    {"", "--samples", "S", kGroupGrid, kEval, &Settings::eval_samples,
     "repetitions of each length and depth; windows of each length for kld", 1, 1e6},
    {"", "--no-controls", "", kGroupGrid, kEval, &Settings::no_controls,
     "leave out the controls none, recent and random, which are added otherwise"},
    {"", "--question-agnostic", "", kGroupGrid, kEval, &Settings::question_agnostic,
     "evict before the question is known; otherwise it is the end of the prompt, as in `kedge run`"},
    {"", "--decode-evicts", "", kGroupGrid, kEval, &Settings::decode_evicts,
     "hold the budget while answering too; otherwise evict once after the prompt and hold the answer beside it"},
    {"", "--skip-bad", "", kGroupGrid, kEval, &Settings::skip_bad, "leave out malformed lines of -f, and count them"},
    {"", "--reference", "WHAT", kGroupGrid, kEval, &Settings::reference,
     "whose full cache KLD and perplexity compare with", kAny, kAnyMax, "self|llama.cpp"},
    {"", "--noise-windows", "N", kGroupGrid, kEval, &Settings::noise_windows,
     "windows over which the noise floor of KLD is measured; 0: not", 0, 1e6},
    {"", "--no-share", "", kGroupGrid, kEval, &Settings::no_share,
     "read every prompt anew for every cell instead of sharing its full cache: the same answers, slower"},
    {"", "--prefix-cache", "MIB", kGroupGrid, kEval, &Settings::prefix_cache_mib,
     "memory for prompts that are kept while --match-quality tries budgets", 0, 1e7},
    {"", "--match-quality", "Q", kGroupGrid, kEval, &Settings::match_quality,
     "instead of --kv-budget: the smallest budget that keeps this share of the full cache's score, 0.99 say", 0, 1},
    {"", "--match-kld", "X", kGroupGrid, kEval, &Settings::match_kld,
     "instead of --kv-budget: the smallest budget whose mean KLD is at most this", 0, 100},

    // Training of a gate
    {"", "--gate-out", "DIR", kGroupTraining, kTrain, &Settings::gate_out,
     "folder of labels, gates and their report; labels that are there already are used"},
    {"", "--held-out", "NAME,...", kGroupTraining, kTrain, &Settings::held_out,
     "documents, by file name, that nothing is learned from; not given: every tenth window of all"},
    {"", "--gate-label", "WHAT", kGroupTraining, kTrain, &Settings::gate_label,
     "what makes a row worth keeping: the attention of the text that follows, of a repetition of the text, or the "
     "larger of both",
     kAny, kAnyMax, "both|future|repeat"},
    {"", "--gate-input", "LIST", kGroupTraining, kTrain, &Settings::gate_input,
     "what the gate sees, a gate for each: hidden, key-value (of a row when it is written), access, attention (of a "
     "row at every eviction), window (hidden, and what an eviction sees with no records but the newest queries), all "
     "(hidden, and all that is seen at an eviction), echo (what the text's own queries look at), all-echo, anchor "
     "(window, and AnDPro's score)"},
    {"", "--gate-label-norm", "WHAT", kGroupTraining, kTrain, &Settings::gate_label_norm,
     "what a row's later attention is multiplied by: what its value adds to the stream, or what its going changes",
     kAny, kAnyMax, "value|change"},
    {"", "--train-tokens", "N", kGroupTraining, kTrain, &Settings::train_tokens, "tokens of all windows together", 1024,
     1e9},
    {"", "--train-lengths", "LIST", kGroupTraining, kTrain, &Settings::train_lengths,
     "tokens of a window, taken in turn, as in 1024,4k"},
    {"", "--train-share", "SHARE", kGroupTraining, kTrain, &Settings::train_share,
     "of a window's rows: how many are kept", 0.01, 1},
    {"", "--gate-window", "N", kGroupTraining, kTrain, &Settings::gate_window,
     "newest rows, which the gate does not decide about", 1, 4096},
    {"", "--gate-width", "N", kGroupTraining, kTrain, &Settings::gate_width, "hidden units; 0: a linear gate alone", 0,
     4096},
    {"", "--gate-epochs", "N", kGroupTraining, kTrain, &Settings::gate_epochs, "passes over the rows", 1, 1000},
    {"", "--stage", "STAGE", kGroupTraining, kTrain, &Settings::stage,
     "labels: gates fitted to labels; lm: a gate that learns through the model, from the language-model loss (the "
     "component kedge-train-lm); both: one after the other",
     kAny, kAnyMax, "labels|lm|both"},

    // ... through the model
    {"", "--gate-init", "FILE", kGroupTrainingLm, kTrain, &Settings::gate_init,
     "the gate to begin with, of the input hidden, as --stage labels makes it (of two stages the first); not given: a "
     "new one of --gate-width, open at first. With --stage labels: the gate whose first stage is taken as it is, and "
     "an "
     "ageing stage fitted to it"},
    {"", "--lm-steps", "N", kGroupTrainingLm, kTrain, &Settings::lm_steps, "steps of the whole training", 1, 1e7},
    {"", "--lm-batch", "N", kGroupTrainingLm, kTrain, &Settings::lm_batch, "windows of a step", 1, 1024},
    {"", "--lm-loss", "WHAT", kGroupTrainingLm, kTrain, &Settings::lm_loss,
     "KL divergence from the full cache's predictions, or cross-entropy of the text", kAny, kAnyMax, "kl|ce"},
    {"", "--lm-keep", "SHARE", kGroupTrainingLm, kTrain, &Settings::lm_keep,
     "mean keep rate that the training ends at, and at which the engine judges gates", 0.01, 0.95},
    {"", "--lm-pressure", "HOW", kGroupTrainingLm, kTrain, &Settings::lm_pressure,
     "how a step comes to its keep rate: logits are shifted to it exactly, over all layers or in each layer; or a "
     "penalty on what is above",
     kAny, kAnyMax, "exact|layer|penalty"},
    {"", "--lm-rows", "WHOSE", kGroupTrainingLm, kTrain, &Settings::lm_rows,
     "keys, values and gate inputs: of the gated stream itself, or of a reading with the full cache", kAny, kAnyMax,
     "own|full"},
    {"", "--lm-learns", "STAGE", kGroupTrainingLm, kTrain, &Settings::lm_learns,
     "append: what is said of a row when it is written; ageing: what is said of rows at an eviction, of a --gate-init "
     "that has such a stage, over texts that are evicted once",
     kAny, kAnyMax, "append|ageing"},
    {"", "--lm-lambda", "X", kGroupTrainingLm, kTrain, &Settings::lm_lambda, "weight of the penalty", 0, 1e6},
    {"", "--lm-adversarial", "SHARE", kGroupTrainingLm, kTrain, &Settings::lm_adversarial,
     "share of the steps of the second half that read needles and copies, built from the documents, whose rows the "
     "gate would give up first",
     0, 1},
    {"", "--lm-rate", "X", kGroupTrainingLm, kTrain, &Settings::lm_rate, "highest learning rate", 1e-9, 1},
    {"", "--lm-lora", "R", kGroupTrainingLm, kTrain, &Settings::lm_lora,
     "rank of a LoRA adapter of q, k, v and output that learns beside the gate, for `--lora`; 0: the model stays as it "
     "is",
     0, 256},
    {"", "--lm-lora-rate", "X", kGroupTrainingLm, kTrain, &Settings::lm_lora_rate,
     "highest learning rate of the adapter", 1e-9, 1},
    {"-s", "--seed", "N", kGroupTrainingLm, kTrain, &Settings::seed,
     "seed of windows, noise, built passages and a new gate's weights; -1 or not given: 1", -1, 4294967295.0},
    {"", "--lm-recompute", "WHEN", kGroupTrainingLm, kTrain, &Settings::lm_recompute,
     "compute each layer again on the way back instead of keeping what it made (gradient checkpointing): less memory, "
     "a third slower; auto: where half of the free memory is not enough",
     kAny, kAnyMax, "auto|on|off"},
    {"", "--lm-products", "TYPE", kGroupTrainingLm, kTrain, &Settings::lm_products,
     "how the frozen layers multiply; auto: bf16 where the processor does that several times faster", kAny, kAnyMax,
     "auto|f32|bf16"},
    {"", "--lm-save-every", "N", kGroupTrainingLm, kTrain, &Settings::lm_save_every,
     "steps between two states of the training in --gate-out, from which the same command goes on", 1, 1e7},
    {"", "--lm-judge-every", "N", kGroupTrainingLm, kTrain, &Settings::lm_judge_every,
     "steps between two judgements by the engine on held-out windows", 1, 1e7},
    {"", "--lm-judge-windows", "N", kGroupTrainingLm, kTrain, &Settings::lm_judge_windows,
     "held-out windows of a judgement", 1, 1000},
    {"", "--lm-patience", "N", kGroupTrainingLm, kTrain, &Settings::lm_patience,
     "judgements without a better gate after which training ends; 0: never before its last step", 0, 1e6},

    {"", "--out", "DIR", kGroupReports, kEval, &Settings::out,
     "folder of the run; there already: it goes on; not given: kedge-eval/TASK-HASH"},
    {"", "--dry-run", "", kGroupReports, kEval, &Settings::dry_run,
     "print the grid and an estimate of its time, and end"},
    {"", "--export-samples", "", kGroupReports, kEval, &Settings::export_samples,
     "write the token ids of every sample to samples.jsonl in the folder"},
    {"", "--save-logits", "DIR", kGroupReports, kEval, &Settings::save_logits,
     "write the logits of every scored window, of the full cache and of the cell, as .npy files"},
    {"", "--baseline", "RUN", kGroupReports, kEval, &Settings::baseline,
     "exit 6 where the quality is below that run's by more than allowed"},
    {"", "--max-drop", "X", kGroupReports, kEval, &Settings::max_drop, "allowed drop of a mean score", 0, 1},
    {"", "--max-kld-rise", "X", kGroupReports, kEval, &Settings::max_kld_rise,
     "allowed rise of a mean KLD, as a share of the baseline's", 0, 1e6},

    // inspect's request
    {"", "--prompt-tokens", "N", kGroupInput, kInspect, &Settings::prompt_tokens,
     "length of the prompt the budget is explained for; 0: the trained context less --predict", 0, 1e9},

    // bench: llama-bench's flags, and the axes of the KV store
    {"-p", "--n-prompt", "LIST", kGroupBench, kBench, &Settings::bench_prompts,
     "tokens of a prompt to read; LIST is 512,1024 or a range first-last, first-last+step, first-last*factor; 0: none"},
    {"-n", "--n-gen", "LIST", kGroupBench, kBench, &Settings::bench_gens, "tokens to decode one by one; 0: none"},
    {"-pg", "--prompt-gen", "PP,TG", kGroupBench, kBench, &Settings::bench_pairs,
     "read PP tokens and decode TG, timed together; several pairs are joined by ';'"},
    {"-d", "--n-depth", "LIST", kGroupBench, kBench, &Settings::bench_depths,
     "tokens that are in the cache before the timed part"},
    {"-t", "--threads", "LIST", kGroupBench, kBench, &Settings::bench_threads,
     "threads; 0: one per CPU this process may use"},
    {"-b", "--batch-size", "LIST", kGroupBench, kBench, &Settings::bench_batches,
     "most tokens of a chunk where the prompt is read in chunks; llama.cpp's batch"},
    {"-ub", "--ubatch-size", "LIST", kGroupBench, kBench, &Settings::bench_ubatches, "tokens of one graph"},
    {"-ctk", "--cache-type-k", "LIST", kGroupBench, kBench, &Settings::bench_cache_k,
     "types of key rows: f16, bf16, q8_0, q4_0"},
    {"-ctv", "--cache-type-v", "LIST", kGroupBench, kBench, &Settings::bench_cache_v,
     "types of value rows; every type of keys meets every type of values"},
    {"", "--kv-budget", "LIST", kGroupBench, kBench, &Settings::bench_budgets,
     "budgets: none (the full cache), 16MiB, 10% (of the full cache of the test), 2048tok"},
    {"", "--kv-policy", "LIST", kGroupBench, kBench, &Settings::bench_policies,
     "policies; a piece k=v belongs to the policy before it: andpro:window=32,pool=11,snapkv are two"},
    {"-r", "--repetitions", "N", kGroupBench, kBench, &Settings::bench_repetitions, "times that each test is run", 1,
     10000},
    {"", "--delay", "SECONDS", kGroupBench, kBench, &Settings::bench_delay, "pause before each test", 0, 3600},
    {"", "--no-warmup", "", kGroupBench, kBench, &Settings::bench_no_warmup, "time the first run of a test too"},
    {"-o", "--output", "FORMAT", kGroupBench, kBench, &Settings::bench_output, "what standard output gets", kAny,
     kAnyMax, "md|csv|json|jsonl"},
    {"", "--vs", "OTHER", kGroupBench, kBench, &Settings::bench_vs,
     "run llama.cpp too, in this process, in turn with Kedge, on the same tokens (flash attention, f16 cache)", kAny,
     kAnyMax, "llama.cpp"},

    // Reports and logs
    {"", "--json", "", kGroupReports, kPerplexity | kInspect | kPolicies | kEval, &Settings::json,
     "one JSON object on standard output instead of text (perplexity: with --kl-divergence)"},
    {"", "--domains", "", kGroupReports, kPolicies, &Settings::domains,
     "the domains of --kv-domain instead of the policies; with a name: its definition"},
    {"", "--stats", "FILE", kGroupReports, kRun, &Settings::stats,
     "write what the run did and held as one JSON object"},
    {"", "--kv-map", "FILE", kGroupReports, kRun, &Settings::kv_map,
     "write the kept positions of every layer and kv head as JSON"},
    {"", "--explain", "N", kGroupReports, kRun, &Settings::explain,
     "after the answer, tell on standard error which N tokens evictions judged best and worst, why, and who holds "
     "their "
     "rows; and counters for each layer",
     0, 1e6},
    {"", "--explain-json", "FILE", kGroupReports, kRun, &Settings::explain_json,
     "write the same as JSON, 10 tokens of each kind where --explain does not say how many"},
    {"", "--explain-at", "LAYER[:HEAD]", kGroupReports, kRun, &Settings::explain_at,
     "explain this layer, or this kv head of it, instead of all of them together"},

    // report
    {"-o", "--html", "FILE", kGroupReports, kReport, &Settings::html, "the page to write"},
    {"", "--figures", "DIR", kGroupReports, kReport, &Settings::figures, "also write every figure there, as .svg"},

    {"", "--progress", "HOW", kGroupReports, kMeasure | kBench | kTrain, &Settings::progress,
     "progress on standard error; auto: a bar on a terminal, plain lines otherwise", kAny, kAnyMax,
     "auto|plain|json|none"},
    {"-v", "--verbose", "", kGroupReports, kAll, &Settings::verbose, "more on standard error"},
    {"", "--log-file", "FILE", kGroupReports, kAll, &Settings::log_file, "append the log to FILE as well"},
    {"", "--config", "FILE", kGroupReports, kAll, &Settings::config,
     "TOML file of options: the long names without dashes in front, as in kv-budget = \"64MiB\""},
    {"-h", "--help", "", kGroupReports, kAll, &Settings::help, "this page"},
};

}  // namespace

std::span<const OptionSpec> option_table() { return kTable; }

}  // namespace kedge::cli
