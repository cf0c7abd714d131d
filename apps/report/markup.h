// Text and numbers as they stand in the page.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::report {

// Text for HTML and SVG, as content or inside of quotes: & < > " ' become references, what is no UTF-8 and control
// characters but tab and line feed become U+FFFD. Nothing a model says is ever markup.
std::string escape(std::string_view text);

// At most `max_chars` code points, an ellipsis instead of the rest. Text need not be UTF-8.
std::string shortened(std::string_view text, size_t max_chars);

// A word that is fine as a file name and as an id: letters, digits, dot, dash, percent as "pct"; the rest is '-'.
std::string slug(std::string_view text);

std::string real(double value, int decimals);                   // "0.50"
std::string plain(double value);                                // "0.5", "1024", up to 6 digits
std::string significant(double value);                          // three digits: "0.0133"
std::string coordinate(double value);                           // up to one decimal
std::string percent(double share, int decimals = 0);            // 0.934 -> "93 %"
std::string bytes(double value);                                // "6.1 MiB", three digits
std::string seconds(double value);                              // "12.3 s", "4.1 ms"
std::string with_dash(const std::optional<std::string>& text);  // "–" for nothing

// "a", "a and b", "a, b and c"; more than `most`: "a, b and 3 more".
std::string listed(const std::vector<std::string>& words, size_t most = 6);

}  // namespace kedge::report
