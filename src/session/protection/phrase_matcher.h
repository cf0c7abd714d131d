// Finds phrases in a text that arrives token by token, and says which tokens they overlap.
//
// The automaton of Aho and Corasick (1975) over the bytes of the phrases: one step for each byte of text, however many
// phrases there are. Runs of white space count as one space in text and phrases alike, ASCII letters as lower case;
// phrases whose case counts are compared once more. A phrase that begins (ends) with a letter or digit matches only
// where no word goes on before (behind) it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::session {

struct Phrase {
  std::string text;  // not empty, no white space at its ends
  bool match_case = false;
  bool at_line_start = false;  // only where nothing but white space stands before it in its line
  int32_t owner = 0;           // 0: a keyword; others: the caller's business
};

// Tokens [first, last] of the sequence.
struct TokenRun {
  int32_t first = 0;
  int32_t last = 0;
  int32_t owner = 0;
};

class PhraseMatcher {
 public:
  explicit PhraseMatcher(const std::vector<Phrase>& phrases);
  bool empty() const { return patterns_.empty(); }

 private:
  friend class PhraseScan;
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fail = 0;
    int32_t match = 0;         // nearest node at or behind this one, along `fail`, where phrases end; 0: none
    int32_t last_phrase = -1;  // phrases that end here: a list through Pattern::next
    int32_t depth = 0;
    char byte = 0;
    bool leads_to_keyword = false;  // a longer phrase of owner 0 goes on from here
  };
  struct Pattern {
    std::string text;  // white space made even, case as written
    bool match_case = false;
    bool at_line_start = false;
    bool starts_word = false;
    bool ends_word = false;
    int32_t owner = 0;
    int32_t next = -1;
  };
  int32_t child(int32_t node, char byte) const;
  int32_t step(int32_t node, char byte) const;
  void insert(const Phrase& phrase);
  void link();

  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_{};  // of the root, by byte; 0: none
  std::vector<Pattern> patterns_;
  size_t longest_ = 0;  // bytes
};

// What changes while a text is read. The matcher must outlive it.
class PhraseScan {
 public:
  explicit PhraseScan(const PhraseMatcher& matcher);

  // Reads the bytes of one token (in order; tokens without bytes are fine) and appends matches that are certain.
  void read(std::string_view bytes, int32_t token, std::vector<TokenRun>& matches);

  // What may yet turn out to be a match: phrases at the very end of the text, where the next byte decides whether the
  // word goes on, and the longest beginning of a keyword that the text ends with.
  void append_open(std::vector<TokenRun>& runs) const;

 private:
  struct Place {
    char byte = 0;
    bool word_before = false;  // the character before this one is part of a word
    bool line_start = false;
    int32_t token = 0;
  };
  const Place& place(int64_t at) const { return ring_[static_cast<size_t>(at) & (ring_.size() - 1)]; }
  void push(char byte, int32_t token, std::vector<TokenRun>& matches);
  bool holds(const PhraseMatcher::Pattern& pattern, int64_t begin) const;

  const PhraseMatcher& matcher_;
  std::vector<Place> ring_;  // the last bytes of the text, as they are matched
  int64_t n_bytes_ = 0;
  int32_t node_ = 0;
  bool in_word_ = false;  // the last whole character is part of a word
  bool was_blank_ = false;
  bool line_start_ = true;
  std::vector<TokenRun> pending_;  // ended with the last byte; the next one decides
};

}  // namespace kedge::session
