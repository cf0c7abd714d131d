// Made-up names, values and facts for generated tasks.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "eval/random.h"

namespace kedge::eval {

enum class NameKind { words, numbers, uuids };

// "words", "numbers", "uuids", as the tables of options write them.
NameKind name_kind(std::string_view text);

// Names that differ from all that were drawn before: two words with a hyphen, seven digits, or a random UUID.
class Names {
 public:
  explicit Names(Random& random) : random_(random) {}
  std::string draw(NameKind kind);
  std::string digits(int n);  // no leading zero
  std::string person();       // given name and surname; both differ from all that were drawn before
  std::string company();      // "Falcon Works"
  std::string variable();     // five capital letters
  std::string city();
  std::string item();  // a thing one can keep, carry or lose: "violin"

 private:
  template <typename Make>
  std::string fresh(Make make);

  Random& random_;
  std::set<std::string> seen_;
};

}  // namespace kedge::eval
