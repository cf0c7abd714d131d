// Errors are values at the door: every public call that can fail returns Result<T> or Status.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace kedge {

// What kind of mistake of the world it was. The command line maps each to its exit code.
enum class ErrorCode {
  failed,             // exit 1: an I/O error, an allocation that failed, ...
  usage,              // exit 2: an unknown flag, policy, option or unit
  model_unreadable,   // exit 3: a model or gate file that is missing, damaged or unsupported
  budget_impossible,  // exit 4: the budget cannot hold what must be held; the message has the arithmetic
  context_too_long,   // exit 1: more tokens than the context allows; the message has both numbers
  in_use,             // exit 5: a port or a folder that another process holds
  quality_below,      // exit 6: a quality gate failed; the message has what was measured and what was asked
  cancelled,          // exit 130: the caller asked to stop
};

struct Error {
  ErrorCode code = ErrorCode::failed;
  std::string message;  // one line, names the key, tensor, flag or field, what was found, what is allowed
};

// A value or an Error. `value()` and `error()` may be called only on the side that is held (checked).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

}  // namespace kedge
