#include "explain.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "console.h"
#include "engine.h"

namespace kedge::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDefaultTokens = 10;
constexpr size_t kTextWidth = 20;

std::string right(std::string text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

// A table cell of so many characters, where a character may be several bytes.
std::string left(std::string text, size_t width) {
  const auto n = static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
  return n < width ? text + std::string(width - n, ' ') : text;
}

std::string number(double value) {
  if (std::isnan(value))
    return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.4g", value);
  return buffer;
}

Result<int> index_of(const std::string& text) {
  int value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size() || value < 0)
    return Error{.code = ErrorCode::usage, .message = ""};
  return value;
}

size_t utf8_length(unsigned char lead) {
  return lead < 0x80                   ? 1
         : lead >= 0xC2 && lead < 0xE0 ? 2
         : (lead & 0xF0) == 0xE0       ? 3
         : lead >= 0xF0 && lead < 0xF5 ? 4
                                       : 0;
}

// One character of layers: how many kv heads of each hold the row, '.' none, '+' ten or more.
std::string holders(const ExplainedToken& row, const Explanation& all, int only_layer) {
  std::vector<int> n(static_cast<size_t>(all.n_layers), 0);
  for (const auto& [layer, head] : row.held_by)
    ++n[static_cast<size_t>(layer)];
  std::string text;
  for (int layer = 0; layer < all.n_layers; ++layer) {
    const int held = n[static_cast<size_t>(layer)];
    if (only_layer < 0 || only_layer == layer)
      text += held == 0 ? '.' : held > 9 ? '+' : static_cast<char>('0' + held);
  }
  return text;
}

std::string token_lines(const ExplainReport& report, const std::vector<ExplainedToken>& rows,
                        const std::vector<std::string>& texts) {
  const Explanation& all = report.explanation;
  std::string text =
      right("position", 10) + "  " + left("text", kTextWidth + 2) + right("rank", 7) + right("score", 11);
  for (const std::string& name : all.part_names)
    text += right(name, 12);
  text += right("held by", 10) + "  by layer\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const ExplainedToken& row = rows[i];
    text += right(grouped(row.position), 10) + "  " + left(token_text(texts[i], kTextWidth), kTextWidth + 2) +
            right(format_real(row.rank, 3), 7) + right(number(row.score), 11);
    for (const double part : row.parts)
      text += right(number(part), 12);
    text += right(std::to_string(row.held_by.size()) + "/" + std::to_string(all.n_heads), 10) + "  " +
            holders(row, all, report.options.layer) + "\n";
  }
  return text;
}

std::string layer_lines(const ExplainReport& report) {
  std::string text = right("layer", 7) + right("rows held", 11) + right("evicted", 10) + right("evictions", 11) +
                     right("mean kept", 12) + right("min kept", 12) + right("policy ms", 11) + "  rows by head\n";
  for (size_t l = 0; l < report.layers.size(); ++l) {
    if (report.options.layer >= 0 && report.options.layer != static_cast<int>(l))
      continue;
    const LayerStats& layer = report.layers[l];
    HeadStats sum{.min_kept_score = HUGE_VAL};
    std::string heads;
    for (const HeadStats& head : layer.heads) {
      sum.rows += head.rows;
      sum.evicted += head.evicted;
      sum.mean_kept_score += head.mean_kept_score / static_cast<double>(layer.heads.size());
      sum.min_kept_score = std::min(sum.min_kept_score, head.min_kept_score);
      heads += " " + grouped(head.rows);
    }
    text += right(std::to_string(l), 7) + right(grouped(sum.rows), 11) + right(grouped(sum.evicted), 10) +
            right(grouped(layer.evictions), 11) + right(number(sum.mean_kept_score), 12) +
            right(number(sum.min_kept_score), 12) + right(format_real(layer.policy_ms, 2), 11) + " " + heads + "\n";
  }
  return text;
}

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json tokens_json(const Explanation& all, const std::vector<ExplainedToken>& rows,
                 const std::vector<std::string>& texts) {
  Json out = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const ExplainedToken& row = rows[i];
    Json parts = Json::object();
    for (size_t p = 0; p < row.parts.size(); ++p)
      parts[all.part_names[p]] = number_json(row.parts[p]);
    Json held = Json::array();
    for (const auto& [layer, head] : row.held_by)
      held.push_back({layer, head});
    out.push_back({{"position", row.position},
                   {"token", row.token},
                   {"text", texts[i]},
                   {"rank", row.rank},
                   {"score", number_json(row.score)},
                   {"parts", parts},
                   {"judged_by", row.n_judged},
                   {"held_by", held}});
  }
  return out;
}

}  // namespace

Json layers_json(const std::vector<LayerStats>& layers) {
  Json out = Json::array();
  for (const LayerStats& layer : layers) {
    Json heads = Json::array();
    for (const HeadStats& head : layer.heads) {
      heads.push_back({{"rows", head.rows},
                       {"evicted", head.evicted},
                       {"evictions", head.evictions},
                       {"mean_kept_score", number_json(head.mean_kept_score)},
                       {"min_kept_score", number_json(head.min_kept_score)}});
    }
    out.push_back({{"evictions", layer.evictions}, {"policy_ms", layer.policy_ms}, {"heads", heads}});
  }
  return out;
}

bool explain_asked(const Settings& settings) { return settings.explain > 0 || !settings.explain_json.empty(); }

Result<ExplainOptions> explain_options(const Settings& settings) {
  ExplainOptions options{.n = settings.explain > 0 ? settings.explain : kDefaultTokens};
  if (settings.explain_at.empty())
    return options;
  const auto usage = [&](const std::string& why) {
    return Error{.code = ErrorCode::usage, .message = "--explain-at '" + settings.explain_at + "': " + why};
  };
  if (!explain_asked(settings))
    return usage("nothing is explained without --explain N or --explain-json FILE");
  const size_t colon = std::min(settings.explain_at.find(':'), settings.explain_at.size());
  const Result<int> layer = index_of(settings.explain_at.substr(0, colon));
  if (!layer)
    return usage("expected LAYER or LAYER:HEAD, as in 3 or 3:0");
  options.layer = *layer;
  if (colon == settings.explain_at.size())
    return options;
  const Result<int> head = index_of(settings.explain_at.substr(colon + 1));
  if (!head)
    return usage("expected LAYER or LAYER:HEAD, as in 3 or 3:0");
  options.head = *head;
  return options;
}

Status check_explain_at(const Settings& settings, const ModelInfo& info) {
  const Result<ExplainOptions> options = explain_options(settings);
  if (!options)
    return options.error();
  if (options->layer < info.n_layers && options->head < info.n_kv_heads)
    return {};
  return Error{.code = ErrorCode::usage,
               .message = "--explain-at '" + settings.explain_at + "': the model has layers 0 to " +
                          std::to_string(info.n_layers - 1) + " with kv heads 0 to " +
                          std::to_string(info.n_kv_heads - 1)};
}

std::string token_text(const std::string& piece, size_t width) {
  std::string out = "'";
  size_t used = 0;
  for (size_t at = 0; at < piece.size();) {
    const auto byte = static_cast<unsigned char>(piece[at]);
    size_t n = utf8_length(byte);
    bool whole = n > 0 && at + n <= piece.size();
    for (size_t i = 1; whole && i < n; ++i)
      whole = (piece[at + i] & 0xC0) == 0x80;
    std::string shown;
    if (byte == '\n') {
      shown = "\\n";
    } else if (byte == '\t') {
      shown = "\\t";
    } else if (!whole || byte < 0x20 || byte == 0x7F) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\x%02x", byte);
      shown = buffer;
      n = 1;
    } else {
      shown = piece.substr(at, n);
    }
    const size_t columns = shown[0] == '\\' ? shown.size() : 1;
    if (used + columns > width - 2)
      return out + "..";  // in the place of the quote and a character
    out += shown;
    used += columns;
    at += n;
  }
  return out + "'";
}

std::string explain_text(const ExplainReport& report) {
  const Explanation& all = report.explanation;
  std::string where =
      report.options.layer < 0 ? grouped(all.n_heads) + " kv heads of " + grouped(all.n_layers) + " layers"
      : report.options.head < 0
          ? "layer " + std::to_string(report.options.layer)
          : "layer " + std::to_string(report.options.layer) + ", kv head " + std::to_string(report.options.head);
  if (all.n_judged == 0)
    return "nothing was evicted in " + where + ": no row has been judged\n" + layer_lines(report);
  std::string text = grouped(all.n_judged) + " of " + grouped(all.n_tokens) + " tokens were judged in " + where +
                     " (the others were protected or came after the last eviction)\n";
  text += "best\n" + token_lines(report, all.best, report.best_texts);
  text += "worst\n" + token_lines(report, all.worst, report.worst_texts);
  return text + layer_lines(report);
}

std::string explain_json(const ExplainReport& report, const std::string& policy) {
  const Explanation& all = report.explanation;
  const Json json = {
      {"policy", policy},
      {"n_tokens", all.n_tokens},
      {"n_judged", all.n_judged},
      {"n_heads", all.n_heads},
      {"layer", report.options.layer < 0 ? Json(nullptr) : Json(report.options.layer)},
      {"head", report.options.head < 0 ? Json(nullptr) : Json(report.options.head)},
      {"parts", all.part_names},
      {"best", tokens_json(all, all.best, report.best_texts)},
      {"worst", tokens_json(all, all.worst, report.worst_texts)},
      {"layers", layers_json(report.layers)},
  };
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_explanation(const Settings& settings, const Model& model, const Session& session) {
  if (!explain_asked(settings))
    return {};
  const Result<ExplainOptions> options = explain_options(settings);
  if (!options)
    return options.error();
  Result<Explanation> explanation = session.explain(*options);
  if (!explanation)
    return explanation.error();
  ExplainReport report{.options = *options,
                       .explanation = *std::move(explanation),
                       .layers = session.layer_stats(),
                       .best_texts = {},
                       .worst_texts = {}};
  for (const ExplainedToken& row : report.explanation.best)
    report.best_texts.push_back(model.piece(row.token));
  for (const ExplainedToken& row : report.explanation.worst)
    report.worst_texts.push_back(model.piece(row.token));
  if (settings.explain > 0) {
    std::string text = explain_text(report);
    text.pop_back();
    note(text);
  }
  if (settings.explain_json.empty())
    return {};
  return write_file(settings.explain_json, explain_json(report, session.stats().policy));
}

}  // namespace kedge::cli
