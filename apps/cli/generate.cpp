#include "generate.h"

#include "console.h"
#include "signals.h"
#include "utf8_buffer.h"

namespace kedge::cli {

Result<Answer> generate(const Model& model, Session& session, const GenerateOptions& options, const Print& print) {
  Answer answer;
  Utf8Buffer characters;
  answer.finish_reason = "length";
  while (options.n_predict < 0 || answer.n_tokens < options.n_predict) {
    if (stop_requested()) {
      answer.finish_reason = "interrupted";
      break;
    }
    const Token token = session.sample();
    if (model.is_end_of_generation(token)) {
      answer.finish_reason = "stop";
      break;
    }
    const std::string piece = model.piece(token);
    answer.text += piece;
    ++answer.n_tokens;
    if (Status status = print(characters.push(piece)); !status)
      return status.error();
    if (answer.n_tokens == options.n_predict && !options.append_last)
      break;

    const Status status = session.decode(token);
    if (status.ok())
      continue;
    const bool too_much = status.error().code == ErrorCode::budget_impossible;  // protected rows: nothing is lost
    if (status.error().code != ErrorCode::context_too_long && !(too_much && options.append_last))
      return status.error();
    warn("generation ends: " + status.error().message);
    answer.finish_reason = too_much ? "budget" : "context";
    break;
  }
  if (Status status = print(characters.flush()); !status)
    return status.error();
  return answer;
}

}  // namespace kedge::cli
