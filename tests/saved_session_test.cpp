// Save and restore, fork, mark and rewind after evictions: what follows is what would have followed, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "door.h"
#include "kedge/policy.h"
#include "same_future.h"
#include "support/oracle.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

struct Case {
  std::string policy;
  std::string budget;
  PrefillOrder order = PrefillOrder::automatic;
  std::string type = "f16";
  std::string name() const {
    return policy + " at " + budget + (order == PrefillOrder::chunked ? ", chunked, " : ", ") + type;
  }
};

// Every scorer in both orders of reading, schedules of other lengths, both row types.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& policy : evicting_scorers()) {
    out.push_back({policy, "250KiB", PrefillOrder::automatic});
    out.push_back({policy, "250KiB", PrefillOrder::chunked});
    out.push_back({policy, "30%", PrefillOrder::layer_major});
  }
  for (const char* policy : {"andpro/every:n=16", "andpro/uniform/every:n=7", "snapkv/every:n=100"})
    out.push_back({policy, "250KiB", PrefillOrder::chunked});
  out.push_back({"andpro/every:n=32", "25%", PrefillOrder::layer_major, "bf16"});
  for (const char* allocator : {"pyramid", "retention", "pooled-all", "entropy"})
    out.push_back({std::string("andpro/") + allocator, "300KiB", PrefillOrder::automatic});
  for (const char* type : {"q8_0", "q4_0"})
    out.push_back({"andpro", "250KiB", PrefillOrder::chunked, type});
  out.push_back({"none", "", PrefillOrder::automatic});
  return out;
}

class TinySaved : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     path());
    model_ = open_model(path(), 1);
  }
  std::string path() const { return dir_.file("tiny.gguf"); }
  std::string file() const { return dir_.file("a.kedge"); }

  static SessionOptions options_of(const Case& c, int64_t branch = 0) {
    SessionOptions options = session_options({.budget = c.budget, .policy = c.policy, .prompt = 400, .generated = 200});
    options.order = c.order;
    options.cache_type_k = options.cache_type_v = c.type;
    options.branch_tokens = branch;
    options.seed = 11;
    return options;
  }
  // A session that has read a prompt and written an answer, with evictions in both.
  std::unique_ptr<Session> begun(const Case& c, int64_t branch = 0) const {
    auto session = open_session(*model_, options_of(c, branch));
    session->set_sampler({.temperature = 1, .top_k = 20, .repeat_penalty = 1.3F, .repeat_last_n = 16, .seed = 5});
    must(session->prefill(random_tokens(400, 1)));
    for (int i = 0; i < 90; ++i)
      must(session->decode(session->sample()));
    return session;
  }
  std::unique_ptr<Session> restored() const {
    Result<std::unique_ptr<Session>> session = Session::restore(*model_, file());
    EXPECT_TRUE(session.ok()) << session.error().message;
    return session.ok() ? *std::move(session) : nullptr;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

TEST_F(TinySaved, ARestoredSessionGoesOnAsIfNothingHadHappened) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    const auto session = begun(c);
    EXPECT_EQ(session->stats().evicted_rows > 0, c.policy != "none");
    must(session->save(file(), "what the caller adds"));
    const auto again = restored();
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->app_data(), "what the caller adds");
    EXPECT_EQ(again->options().seed, 11U);
    expect_same_future(*session, *again);
  }
}

// Twice saved is saved: the second file has the same bytes where no clock was read.
TEST_F(TinySaved, SavingWhatWasRestoredGivesTheSameFile) {
  const auto session = begun({"andpro", "250KiB"});
  must(session->save(file()));
  const auto again = restored();
  ASSERT_NE(again, nullptr);
  must(again->save(dir_.file("b.kedge")));
  const auto bytes = [](const std::string& name) {
    std::ifstream in(name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(bytes(file()), bytes(dir_.file("b.kedge")));
}

TEST_F(TinySaved, AForkAfterEvictionGoesOnAsIfNothingHadHappened) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name());
    const auto session = begun(c);
    const auto fork = session->fork();
    ASSERT_TRUE(fork.ok()) << fork.error().message;
    expect_same_future(*session, **fork);
  }
}

TEST_F(TinySaved, AForkIsASessionOfItsOwn) {
  const auto session = begun({"andpro", "250KiB"});
  const auto control = session->fork();
  auto fork = session->fork();
  ASSERT_TRUE(fork.ok() && control.ok());
  for (const Token token : random_tokens(150, 8))
    must((*fork)->decode(token));
  fork = Error{ErrorCode::failed, "gone"};
  expect_same_future(*session, **control);
}

// A question and an answer that evict most of what is there, then back: as if they had never been.
TEST_F(TinySaved, RewindingComesBackWhateverWasEvicted) {
  int64_t branch = 40;
  for (const Case& c : cases()) {
    branch = branch == 40 ? -1 : 40;  // room that is given, or not known
    SCOPED_TRACE(c.name() + ", branch " + std::to_string(branch));
    const auto session = begun(c, branch);
    const auto control = begun(c, branch);
    session->mark();
    control->mark();
    const int64_t evicted = session->stats().evicted_rows;
    bool evicts = false;
    for (int question = 0; question < 3; ++question) {
      must(session->prefill(random_tokens(60 + 150 * question, static_cast<uint32_t>(question))));
      for (int i = 0; i < 100; ++i) {
        must(session->decode(session->sample()));
        ASSERT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes);
      }
      evicts |= session->stats().evicted_rows > evicted;
      must(session->rewind());
      EXPECT_EQ(session->stats().evicted_rows, evicted);
    }
    expect_same_future(*session, *control);
    EXPECT_TRUE(session->has_mark());
    EXPECT_EQ(evicts, c.policy != "none");
  }
}

// Where a question and its answer fit the room that was planned for them, nothing is evicted, and no question sees
// another one.
TEST_F(TinySaved, ABranchThatFitsEvictsNothing) {
  for (const char* budget : {"300KiB", "30%", "100tok", ""}) {
    SCOPED_TRACE(budget);
    SessionOptions options = session_options({.budget = budget, .policy = "andpro", .prompt = 500, .generated = 0});
    options.branch_tokens = 60;
    const auto asked = open_session(*model_, options);
    const auto control = open_session(*model_, options);
    for (Session* session : {asked.get(), control.get()}) {
      must(session->prefill(random_tokens(500, 1)));
      session->mark();
    }
    const int64_t evicted = asked->stats().evicted_rows;
    EXPECT_EQ(evicted > 0, *budget != '\0');
    const auto ask = [&](Session& session, uint32_t question) {
      must(session.rewind());
      must(session.prefill(random_tokens(25, question)));
      for (int i = 0; i < 35; ++i)
        must(session.decode(i));
      EXPECT_EQ(session.stats().evicted_rows, evicted);
      EXPECT_LE(session.stats().kv_peak_bytes, session.stats().kv_budget_bytes);
    };
    for (const uint32_t question : {2U, 3U, 4U})
      ask(*asked, question);
    ask(*control, 4);
    expect_same_now(*asked, *control);
  }
}

TEST_F(TinySaved, AfterAMarkIsDroppedTheWholeBudgetIsThere) {
  const Case c{"andpro", "250KiB"};
  const auto session = begun(c, 40);
  const auto control = begun(c, 40);
  session->mark();
  must(session->prefill(random_tokens(100, 2)));
  must(session->rewind());
  session->drop_mark();
  EXPECT_FALSE(session->has_mark());
  expect_same_future(*session, *control);
}

TEST_F(TinySaved, AMarkIsComeBackToAfterACancelledQuestion) {
  const Case c{"andpro", "250KiB", PrefillOrder::chunked};
  const auto session = begun(c, -1);
  const auto control = begun(c, -1);
  session->mark();
  control->mark();
  int calls = 0;
  const Status status = session->prefill(random_tokens(300, 2), [&](int64_t, int64_t) { return calls++ < 9; });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::cancelled);
  must(session->rewind());
  expect_same_future(*session, *control);
}

TEST_F(TinySaved, AYieldingMarkChangesNothingAndGoesWhenRoomIsNeeded) {
  for (const char* policy : {"andpro", "snapkv/every:n=16", "streaming"}) {
    SCOPED_TRACE(policy);
    const auto session = begun({policy, "250KiB"});
    const auto control = begun({policy, "250KiB"});
    session->mark(Mark::yielding);
    expect_same_future(*session, *control);
    EXPECT_FALSE(session->has_mark());
    const Status status = session->rewind();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::usage);
  }
  const auto roomy = begun({"andpro", "8MiB"});
  const auto control = begun({"andpro", "8MiB"});
  roomy->mark(Mark::yielding);
  for (int i = 0; i < 20; ++i)
    must(roomy->decode(i));
  must(roomy->rewind());
  EXPECT_EQ(roomy->n_tokens(), 490);
  expect_same_future(*roomy, *control);
}

TEST_F(TinySaved, AFirmMarkWithoutRoomIsAnErrorWithTheArithmeticAndNothingIsLost) {
  const auto session = begun({"andpro", "120KiB"});
  const auto control = begun({"andpro", "120KiB"});
  session->mark();
  Status status;
  int n = 0;
  for (; n < 200 && status.ok(); ++n)
    status = session->decode(n);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::budget_impossible);
  for (const char* word : {"the mark at token 490", "blocks", "needed", "KiB"})
    EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
  must(session->rewind());
  session->drop_mark();
  expect_same_future(*session, *control);
}

TEST_F(TinySaved, RewindingToATokenIsExactOrRefused) {
  const SessionOptions options = session_options({.policy = "none", .prompt = 300});
  const auto session = open_session(*model_, options);
  const auto control = open_session(*model_, options);
  for (Session* one : {session.get(), control.get()})
    one->set_sampler({.seed = 5});
  must(session->prefill(random_tokens(300, 1)));
  must(control->prefill(random_tokens(300, 1)));
  for (int i = 0; i < 25; ++i) {
    must(session->decode(i));
    if (i < 5)
      must(control->decode(i));
  }
  const auto refused = [&](Session& s, int64_t n) {
    const Status status = s.rewind(n);
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_NE(refused(*session, 326).find("0..325"), std::string::npos);
  EXPECT_NE(refused(*session, -1).find("0..325"), std::string::npos);
  must(session->rewind(305));
  EXPECT_TRUE(session->logits().empty());
  must(session->decode(70));
  must(control->decode(70));
  expect_same_future(*session, *control);

  const auto evicted = begun({"streaming", "250KiB"});
  EXPECT_NE(refused(*evicted, 100).find("rows were evicted"), std::string::npos);
  EXPECT_EQ(evicted->n_tokens(), 490);
  const auto observing = open_session(*model_, session_options({.budget = "2MiB", .policy = "snapkv", .prompt = 200}));
  must(observing->prefill(random_tokens(200, 1)));
  EXPECT_NE(refused(*observing, 150).find("observes"), std::string::npos);
  must(observing->rewind(200));
  must(session->rewind(0));
  must(session->prefill(random_tokens(300, 1)));
  EXPECT_EQ(session->n_tokens(), 300);
}

TEST_F(TinySaved, AnEmptySessionIsSavedToo) {
  const auto session = open_session(*model_, session_options({.budget = "250KiB", .policy = "andpro", .prompt = 400}));
  must(session->save(file()));
  const auto again = restored();
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->n_tokens(), 0);
  must(session->prefill(random_tokens(400, 1)));
  must(again->prefill(random_tokens(400, 1)));
  expect_same_future(*session, *again);
}

TEST_F(TinySaved, AFileSaysWhatItHolds) {
  const auto session = begun({"andpro", "250KiB"});
  must(session->save(file(), "abc"));
  EXPECT_TRUE(is_session_file(file()));
  EXPECT_FALSE(is_session_file(path()));
  EXPECT_FALSE(is_session_file(dir_.file("nothing")));
  const Result<SessionFileInfo> info = inspect_session_file(file());
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(info->n_tokens, 490);
  EXPECT_EQ(info->policy, session->stats().policy);
  EXPECT_EQ(info->options.budget.text, "250KiB");
  EXPECT_EQ(info->stats.kv_rows, session->stats().kv_rows);
  EXPECT_EQ(info->stats.evicted_rows, session->stats().evicted_rows);
  EXPECT_EQ(info->app_data_bytes, 3);
  EXPECT_EQ(info->model_sha256.size(), 64U);
  EXPECT_EQ(info->sections.size(), 8U);
}

}  // namespace
}  // namespace kedge::test
