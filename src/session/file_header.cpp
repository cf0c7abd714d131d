// The header of a session file: one list of fields, visited for writing and for reading.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "session/file.h"

namespace kedge::session {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostTokens = INT32_MAX;
constexpr int64_t kMostCount = int64_t{1} << 62;
constexpr double kMostBytes = 1e15;
constexpr double kMostTime = 1e18;
constexpr int64_t kMostBlocks = int64_t{1} << 40;
constexpr uint64_t kMostDraws = 100'000'000;  // drawn again one by one when a sampler is resumed
constexpr size_t kMostText = 1 << 20;
constexpr size_t kMostItems = 1 << 20;

constexpr std::array<const char*, 4> kBudgetKinds = {"unlimited", "bytes", "share", "rows"};
constexpr std::array<const char*, 3> kOverflows = {"evict", "error", "truncate"};
constexpr std::array<const char*, 2> kProtectOverflows = {"error", "oldest"};
constexpr std::array<const char*, 3> kOrders = {"automatic", "layer_major", "chunked"};

class Writer {
 public:
  bool has(const char*) const { return true; }
  template <typename T>
  void integer(const char* name, T& value, int64_t, int64_t) {
    json_[name] = value;
  }
  void unsigned_integer(const char* name, uint64_t& value, uint64_t) { json_[name] = value; }
  template <typename T>
  void real(const char* name, T& value, double, double) {
    json_[name] = static_cast<double>(value);
  }
  void text(const char* name, std::string& value) { json_[name] = value; }
  void flag(const char* name, bool& value) { json_[name] = value; }
  template <typename E, size_t N>
  void choice(const char* name, E& value, const std::array<const char*, N>& names) {
    json_[name] = names.at(static_cast<size_t>(value));
  }
  template <typename Visit>
  void object(const char* name, Visit&& visit) {
    Writer inner;
    visit(inner);
    json_[name] = std::move(inner.json_);
  }
  template <typename T, typename Visit>
  void list(const char* name, std::vector<T>& items, Visit&& visit) {
    json_[name] = Json::array();
    for (T& item : items) {
      Writer inner;
      visit(inner, item);
      json_[name].push_back(std::move(inner.json_));
    }
  }
  Json& json() { return json_; }

 private:
  Json json_ = Json::object();
};

class Reader {
 public:
  Reader(const Json& json, std::string path, std::string& error) : json_(json), path_(std::move(path)), error_(error) {}

  bool has(const char* name) const { return json_.contains(name); }
  template <typename T>
  void integer(const char* name, T& value, int64_t least, int64_t most) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    const bool is_small =
        field->is_number_integer() && (!field->is_number_unsigned() || field->get<uint64_t>() <= INT64_MAX);
    if (!is_small || field->get<int64_t>() < least || field->get<int64_t>() > most)
      return refuse(name, *field, std::to_string(least) + ".." + std::to_string(most));
    value = static_cast<T>(field->get<int64_t>());
  }
  void unsigned_integer(const char* name, uint64_t& value, uint64_t most) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    if (!field->is_number_unsigned() || field->get<uint64_t>() > most)
      return refuse(name, *field, "0.." + std::to_string(most));
    value = field->get<uint64_t>();
  }
  template <typename T>
  void real(const char* name, T& value, double least, double most) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    const double found = field->is_number() ? field->get<double>() : NAN;
    if (!(found >= least && found <= most))
      return refuse(name, *field, std::to_string(least) + ".." + std::to_string(most));
    value = static_cast<T>(found);
  }
  void text(const char* name, std::string& value) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    if (!field->is_string() || field->get_ref<const std::string&>().size() > kMostText)
      return refuse(name, *field, "a text of at most " + std::to_string(kMostText) + " bytes");
    value = field->get<std::string>();
  }
  void flag(const char* name, bool& value) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    if (!field->is_boolean())
      return refuse(name, *field, "true or false");
    value = field->get<bool>();
  }
  template <typename E, size_t N>
  void choice(const char* name, E& value, const std::array<const char*, N>& names) {
    std::string found;
    text(name, found);
    std::string allowed;
    for (size_t i = 0; i < N; ++i) {
      if (found == names[i]) {
        value = static_cast<E>(i);
        return;
      }
      allowed += (i > 0 ? ", " : "") + std::string(names[i]);
    }
    refuse(name, Json(found), allowed);
  }
  template <typename Visit>
  void object(const char* name, Visit&& visit) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    if (!field->is_object())
      return refuse(name, *field, "an object");
    Reader inner(*field, path_ + name + ".", error_);
    visit(inner);
  }
  template <typename T, typename Visit>
  void list(const char* name, std::vector<T>& items, Visit&& visit) {
    const Json* field = find(name);
    if (field == nullptr)
      return;
    if (!field->is_array() || field->size() > kMostItems)
      return refuse(name, *field, "a list");
    for (const Json& entry : *field) {
      if (!entry.is_object())
        return refuse(name, entry, "objects");
      Reader inner(entry, path_ + name + ".", error_);
      visit(inner, items.emplace_back());
    }
  }
  const Json* find(const char* name) {
    const auto it = json_.find(name);
    if (it != json_.end())
      return &*it;
    if (error_.empty())
      error_ = "header field '" + path_ + name + "': not there";
    return nullptr;
  }
  void refuse(const char* name, const Json& found, const std::string& allowed) {
    if (!error_.empty())
      return;
    std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60)
      text = text.substr(0, 60) + "...";
    error_ = "header field '" + path_ + name + "': found " + text + ", allowed " + allowed;
  }

 private:
  const Json& json_;
  std::string path_;
  std::string& error_;
};

template <typename Visitor>
void visit_model(Visitor& v, ModelIdentity& m) {
  v.text("name", m.name);
  v.text("architecture", m.architecture);
  v.integer("n_layers", m.n_layers, 1, 10000);
  v.integer("n_heads", m.n_heads, 1, 10000);
  v.integer("n_kv_heads", m.n_kv_heads, 1, 10000);
  v.integer("head_dim", m.head_dim, 1, 4096);
  v.integer("n_vocab", m.n_vocab, 1, INT32_MAX);
  v.text("sha256", m.sha256);
  if (!v.has("lora"))  // files of before adapters
    return;
  v.text("lora", m.lora_sha256);
  v.real("lora_scale", m.lora_scale, -kMostTime, kMostTime);
}

template <typename Visitor>
void visit_protection(Visitor& v, Protection& p) {
  v.list("spans", p.spans, [](auto& o, TokenSpan& span) {
    o.integer("begin", span.begin, 0, kMostTokens);
    o.integer("end", span.end, 0, kMostTokens);
  });
  v.list("phrases", p.phrases, [](auto& o, ProtectedPhrase& phrase) {
    o.text("text", phrase.text);
    o.flag("match_case", phrase.match_case);
  });
  v.text("domain", p.domain);
  v.integer("special_quota", p.special_quota, 0, kMostTokens);
  v.choice("overflow", p.overflow, kProtectOverflows);
}

template <typename Visitor>
void visit_options(Visitor& v, SessionOptions& o) {
  v.object("budget", [&](auto& b) {
    b.choice("kind", o.budget.kind, kBudgetKinds);
    b.real("value", o.budget.value, 0, kMostBytes);
    b.text("text", o.budget.text);
  });
  v.text("policy", o.policy);
  v.text("sinks", o.sinks);
  v.text("recent", o.recent);
  v.text("gate_mode", o.gate_mode);
  v.object("protect", [&](auto& p) { visit_protection(p, o.protect); });
  v.choice("overflow", o.overflow, kOverflows);
  v.choice("order", o.order, kOrders);
  v.integer("n_ctx", o.n_ctx, 0, kMostTokens);
  v.integer("n_batch", o.n_batch, 1, kMostTokens);
  v.integer("n_ubatch", o.n_ubatch, 1, kMostTokens);
  v.text("cache_type_k", o.cache_type_k);
  v.text("cache_type_v", o.cache_type_v);
  v.integer("f16_window", o.f16_window, 0, kMostTokens);
  v.unsigned_integer("seed", o.seed, UINT64_MAX);
  v.real("policy_time_limit_ms", o.policy_time_limit_ms, 0, kMostTime);
  v.integer("expected_prompt", o.expected_prompt, 0, kMostTokens);
  v.integer("expected_generated", o.expected_generated, -1, kMostTokens);
  v.integer("branch_tokens", o.branch_tokens, -1, kMostTokens);
  v.integer("n_observed", o.n_observed, 0, kMostTokens);
  v.object("histories", [&](auto& h) {
    h.flag("attention_sum", o.histories.attention_sum);
    h.flag("echo", o.histories.echo);
    h.flag("query_moments", o.histories.query_moments);
    h.flag("reconstruction", o.histories.reconstruction);
    h.flag("gate", o.histories.gate);
  });
  v.flag("trace_memory", o.trace_memory);
  v.flag("explain", o.explain);
  v.flag("hold_continuation", o.hold_continuation);
}

template <typename Visitor>
void visit_stats(Visitor& v, Stats& s) {
  v.integer("prompt_tokens", s.prompt_tokens, 0, kMostCount);
  v.integer("generated_tokens", s.generated_tokens, 0, kMostCount);
  v.real("prefill_seconds", s.prefill_seconds, 0, kMostTime);
  v.real("decode_seconds", s.decode_seconds, 0, kMostTime);
  v.real("policy_ms", s.policy_ms, 0, kMostTime);
  v.integer("kv_live_bytes", s.kv_live_bytes, 0, kMostCount);
  v.integer("kv_peak_bytes", s.kv_peak_bytes, 0, kMostCount);
  v.integer("kv_full_bytes", s.kv_full_bytes, 0, kMostCount);
  v.integer("kv_budget_bytes", s.kv_budget_bytes, 0, kMostCount);
  v.integer("kv_rows", s.kv_rows, 0, kMostCount);
  v.integer("discarded_rows", s.discarded_rows, 0, kMostCount);
  v.real("gate_threshold", s.gate_threshold, 0, 1);
  v.integer("evictions", s.evictions, 0, kMostCount);
  v.integer("policy_fallbacks", s.policy_fallbacks, 0, kMostCount);
  v.integer("policy_fallback_rounds", s.policy_fallback_rounds, 0, kMostCount);
  v.real("keep", s.keep, 0, 1);
  v.text("plan", s.plan);
}

template <typename Visitor>
void visit_sampler(Visitor& v, model::SamplerState& s) {
  v.real("temperature", s.options.temperature, -kMostTime, kMostTime);
  v.integer("top_k", s.options.top_k, INT32_MIN, INT32_MAX);
  v.real("top_p", s.options.top_p, -kMostTime, kMostTime);
  v.real("min_p", s.options.min_p, -kMostTime, kMostTime);
  v.real("repeat_penalty", s.options.repeat_penalty, -kMostTime, kMostTime);
  v.integer("repeat_last_n", s.options.repeat_last_n, INT32_MIN, INT32_MAX);
  if (v.has("length_penalty"))  // files of before it hold none: 1
    v.real("length_penalty", s.options.length_penalty, -kMostTime, kMostTime);
  v.integer("seed", s.options.seed, 0, UINT32_MAX);
  v.unsigned_integer("n_draws", s.n_draws, kMostDraws);
}

template <typename Visitor>
void visit_header(Visitor& v, FileHeader& h) {
  v.object("model", [&](auto& o) { visit_model(o, h.model); });
  v.object("options", [&](auto& o) { visit_options(o, h.options); });
  v.text("policy", h.policy);
  v.text("kernels", h.kernels);
  v.text("gate", h.gate_sha256);
  v.integer("n_tokens", h.n_tokens, 0, kMostTokens);
  v.integer("evicted_rows", h.evicted_rows, 0, kMostCount);
  v.integer("evicted_until", h.evicted_until, 0, kMostTokens);
  v.integer("last_blocks", h.last_blocks, 0, kMostBlocks);
  v.integer("last_growth", h.last_growth, 0, kMostTokens);
  v.integer("last_rows_exact", h.last_rows_exact, 0, kMostBlocks);
  v.integer("n_observed", h.n_observed, 0, 1 << 20);
  v.object("stats", [&](auto& o) { visit_stats(o, h.stats); });
}

// The repeat penalty's tokens: at most as many as it looks back on.
void read_recent(Reader& reader, const Json& sampler, model::SamplerState& state) {
  const auto it = sampler.find("recent");
  if (it == sampler.end() || !it->is_array())
    return reader.refuse("recent", it == sampler.end() ? Json() : *it, "a list of tokens");
  for (const Json& token : *it) {
    if (!token.is_number_integer() || token.get<int64_t>() < 0 || token.get<int64_t>() > INT32_MAX)
      return reader.refuse("recent", token, "tokens");
    state.recent.push_back(static_cast<Token>(token.get<int64_t>()));
  }
  const int64_t most = std::max(state.options.repeat_last_n, 0);
  if (static_cast<int64_t>(state.recent.size()) > most)
    reader.refuse("recent", Json(state.recent.size()), "at most " + std::to_string(most) + " tokens");
}

void read_sections(Reader& reader, FileHeader& header) {
  const Json* list = reader.find("sections");
  if (list == nullptr)
    return;
  if (!list->is_array() || list->size() > 64)
    return reader.refuse("sections", *list, "a list");
  for (const Json& entry : *list) {
    FileSection section;
    std::string error;
    if (!entry.is_object())
      return reader.refuse("sections", entry, "objects");
    Reader inner(entry, "sections.", error);
    inner.text("name", section.name);
    inner.integer("bytes", section.bytes, 0, kMostCount);
    inner.integer("crc32", section.crc32, 0, UINT32_MAX);
    if (!error.empty())
      return reader.refuse("sections", entry, "name, bytes and crc32");
    header.sections.push_back(std::move(section));
  }
}

}  // namespace

std::string header_to_json(const FileHeader& header) {
  FileHeader copy = header;  // a visitor takes references that it may write through
  Writer writer;
  visit_header(writer, copy);
  Json& json = writer.json();
  json["sampler"] = nullptr;
  if (copy.sampler) {
    Writer inner;
    visit_sampler(inner, *copy.sampler);
    inner.json()["recent"] = copy.sampler->recent;
    json["sampler"] = std::move(inner.json());
  }
  json["sections"] = Json::array();
  for (const FileSection& section : header.sections)
    json["sections"].push_back({{"name", section.name}, {"bytes", section.bytes}, {"crc32", section.crc32}});
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<FileHeader> header_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object())
    return Error{ErrorCode::failed, "header: found no JSON object"};
  FileHeader header;
  std::string error;
  Reader reader(json, "", error);
  visit_header(reader, header);
  if (const Json* sampler = reader.find("sampler"); sampler != nullptr && !sampler->is_null()) {
    header.sampler.emplace();
    reader.object("sampler", [&](Reader& inner) {
      visit_sampler(inner, *header.sampler);
      read_recent(inner, *sampler, *header.sampler);
    });
  }
  read_sections(reader, header);
  if (!error.empty())
    return Error{ErrorCode::failed, error};
  return header;
}

}  // namespace kedge::session
