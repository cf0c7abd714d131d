#include "train/documents.h"

#include <algorithm>
#include <filesystem>

#include "base/sha256.h"
#include "cli/text_input.h"

namespace kedge::train {

std::span<const Token> tokens_of(const Text& text, const Window& window) {
  return std::span<const Token>(text.tokens[window.document])
      .subspan(static_cast<size_t>(window.begin), static_cast<size_t>(window.n));
}

Result<Text> read_documents(std::span<const std::string> paths, std::span<const std::string> held_out_names,
                            const model::Tokenizer& tokenizer) {
  Text text;
  Sha256 hash;
  std::string held_out;
  for (const std::string& path : paths) {
    Result<std::string> content = cli::read_text(path);
    if (!content)
      return content.error();
    const std::string name = std::filesystem::path(path).filename();
    const bool is_held_out = std::ranges::count(held_out_names, name) > 0;
    std::string& list = is_held_out ? held_out : text.names;
    list += (list.empty() ? "" : ", ") + name;
    hash.add(name.data(), name.size());
    hash.add(content->data(), content->size());
    text.tokens.push_back(tokenizer.tokenize(*content, false, false));
    text.sizes.push_back(
        {.name = name, .n_tokens = static_cast<int64_t>(text.tokens.back().size()), .held_out = is_held_out});
  }
  for (const std::string& name : held_out_names) {
    if (std::ranges::none_of(text.sizes, [&](const DocumentSize& d) { return d.name == name; }))
      return Error{ErrorCode::usage, "--held-out: '" + name + "' is none of the documents"};
  }
  text.names += "; held out: " + (held_out.empty() ? "every tenth window" : held_out);
  text.sha256 = Sha256::hex(hash.end());
  return text;
}

}  // namespace kedge::train
