// Tokenizers for tests: exact, tiny and without a model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eval/task.h"

namespace kedge::eval {

// A token a byte.
inline Tokenizer byte_tokenizer() {
  return {.tokenize =
              [](std::string_view text) {
                std::vector<Token> tokens;
                for (const char c : text)
                  tokens.push_back(static_cast<unsigned char>(c));
                return tokens;
              },
          .detokenize =
              [](std::span<const Token> tokens) {
                std::string text;
                for (const Token token : tokens)
                  text += static_cast<char>(token);
                return text;
              }};
}

// A token is white space and the word that follows. Like SentencePiece's, a text that begins without white space is
// read as if it began with a space, so that parts have other tokens alone than together.
inline Tokenizer word_tokenizer() {
  struct Vocabulary {
    std::map<std::string, Token, std::less<>> ids;
    std::vector<std::string> words;
  };
  auto vocabulary = std::make_shared<Vocabulary>();
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  return {.tokenize =
              [vocabulary, space](std::string_view raw) {
                const bool bare = !raw.empty() && !space(raw[0]);
                std::string text(bare ? 1 : 0, ' ');
                text += raw;
                std::vector<Token> tokens;
                for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
                  while (end < text.size() && space(text[end]))
                    ++end;
                  while (end < text.size() && !space(text[end]))
                    ++end;
                  const auto [entry, added] = vocabulary->ids.try_emplace(text.substr(begin, end - begin),
                                                                          static_cast<Token>(vocabulary->words.size()));
                  if (added)
                    vocabulary->words.push_back(entry->first);
                  tokens.push_back(entry->second);
                }
                return tokens;
              },
          .detokenize =
              [vocabulary](std::span<const Token> tokens) {
                std::string text;
                for (const Token token : tokens)
                  text += vocabulary->words[static_cast<size_t>(token)];
                return text;
              }};
}

// Prose of about n_sentences sentences in paragraphs, no two sentences alike; also headings, abbreviations, a line
// without an end and characters beyond ASCII.
inline std::string prose(int n_sentences) {
  static constexpr const char* subjects[] = {"The archive", "A maintainer", "Each package", "The committee",
                                             "Zoë",         "Our mirror",   "The release",  "An upload"};
  static constexpr const char* verbs[] = {"describes", "rejects", "follows", "needs", "replaces", "mentions", "tests"};
  static constexpr const char* objects[] = {"the policy",      "a changelog",      "several bugs (e.g. old ones)",
                                            "version 3.2 now", "the naïve script", "every translation",
                                            "many documents",  "the build daemon", "its dependencies"};
  std::string text;
  for (int i = 0; i < n_sentences; ++i) {
    if (i % 7 == 0)
      text.append(i == 0 ? "" : "\n\n").append("Chapter ").append(std::to_string(i / 7)).append(" on details\n\n");
    text += (i % 7 == 0   ? ""
             : i % 3 == 0 ? "\n"
                          : " ") +
            std::string(subjects[i % 8]) + " " + verbs[i % 7] + " " + objects[i % 9] + " of entry " +
            std::to_string(i) + (i % 11 == 0 ? "!" : ".");
  }
  return text + "\n";
}

}  // namespace kedge::eval
