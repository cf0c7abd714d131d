#include "markup.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

namespace kedge::report {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string printed(const char* format, int decimals, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, decimals, value);
  return text;
}

// Length of the UTF-8 sequence that begins at `at`; 0 where none does (RFC 3629: no surrogates, nothing overlong).
size_t sequence_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U; };
  const unsigned lead = byte(0);
  if (lead < 0x80)
    return 1;
  size_t length = 4;
  if (lead < 0xE0)
    length = 2;
  else if (lead < 0xF0)
    length = 3;
  if (lead < 0xC2 || lead > 0xF4)
    return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80)
      return 0;
  }
  const bool bad = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
                   (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F) ||
                   (lead == 0xEF && byte(1) == 0xBF && byte(2) >= 0xBE);  // U+FFFE and U+FFFF are no XML characters
  return bad ? 0 : length;
}

std::string escaped_char(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\t':
    case '\n':
      return {c};
    default:
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? kReplacement : std::string(1, c);
  }
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = sequence_length(text, at);
    if (length == 0)
      out += kReplacement;
    else if (length == 1)
      out += escaped_char(text[at]);
    else
      out += text.substr(at, length);
    at += std::max<size_t>(length, 1);
  }
  return out;
}

std::string shortened(std::string_view text, size_t max_chars) {
  size_t at = 0;
  for (size_t n = 0; at < text.size(); ++n) {
    if (n == max_chars)
      return std::string(text.substr(0, at)) + "\xE2\x80\xA6";
    at += std::max<size_t>(sequence_length(text, at), 1);
  }
  return std::string(text);
}

std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '%')
      out += "pct";
    else
      out += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' ? c : '-';
  }
  return out.empty() || out.front() == '.' ? "x" + out : out;
}

std::string real(double value, int decimals) { return printed("%.*f", decimals, value); }

std::string plain(double value) { return printed("%.*g", 6, value); }

std::string significant(double value) { return printed("%.*g", 3, value); }

std::string coordinate(double value) {
  const double rounded = std::round(value * 10) / 10;
  return printed("%.*g", 6, rounded == 0 ? 0 : rounded);
}

std::string percent(double share, int decimals) { return real(100 * share, decimals) + "\u00a0%"; }

std::string bytes(double value) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (std::fabs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  const double size = std::fabs(value);
  return real(value, unit == 0 || size >= 99.95 ? 0 : (size >= 9.995 ? 1 : 2)) + "\u00a0" + units[unit];
}

std::string seconds(double value) {
  if (value != 0 && std::fabs(value) < 0.1)
    return real(1000 * value, std::fabs(value) < 0.01 ? 1 : 0) + "\u00a0ms";
  if (value == 0)
    return "0\u00a0s";
  return real(value, value < 10 ? 2 : (value < 100 ? 1 : 0)) + "\u00a0s";
}

std::string with_dash(const std::optional<std::string>& text) { return text ? *text : "\u2013"; }

std::string listed(const std::vector<std::string>& words, size_t most) {
  const bool all = words.size() <= most;
  const size_t shown = all ? words.size() : most - 1;
  std::string out;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0)
      out += all && i + 1 == shown ? " and " : ", ";
    out += words[i];
  }
  return all ? out : out + " and " + std::to_string(words.size() - shown) + " more";
}

}  // namespace kedge::report
