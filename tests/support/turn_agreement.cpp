#include "turn_agreement.hpp"

#include <thread>

using namespace flatshard;

namespace flatshard_test {
namespace {

/// Whose turn it is, and what was said in each round. A rank that has ended says nothing.
struct Table {
  explicit Table(int size) : ended(static_cast<std::size_t>(size)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::size_t turn = 0;
  std::vector<bool> ended;
  std::vector<std::vector<std::string>> rounds;
};

class TurnAgreement final : public RankAgreement {
 public:
  TurnAgreement(Table& table, Rank rank) : table_(table), rank_(rank) {}
  Rank rank() const override { return rank_; }
  int size() const override { return static_cast<int>(table_.ended.size()); }

  // When it is this rank's turn again, every other one has spoken or ended.
  std::vector<std::string> all_gather(const std::string& text) override {
    std::unique_lock hold(table_.mutex);
    const std::size_t round = round_++;
    if (table_.rounds.size() <= round) table_.rounds.resize(round + 1, silence());
    table_.rounds[round][own()] = text;
    pass_on();
    wait(hold);
    return table_.rounds[round];
  }
  void begin() {
    std::unique_lock hold(table_.mutex);
    wait(hold);
  }
  void end() {
    const std::unique_lock hold(table_.mutex);
    table_.ended[own()] = true;
    pass_on();
  }

 private:
  std::size_t own() const { return static_cast<std::size_t>(rank_); }
  std::vector<std::string> silence() const { return std::vector<std::string>(table_.ended.size()); }
  void wait(std::unique_lock<std::mutex>& hold) {
    table_.changed.wait(hold, [this] { return table_.turn == own(); });
  }
  void pass_on() {
    const std::size_t size = table_.ended.size();
    do {
      table_.turn = (table_.turn + 1) % size;
    } while (table_.ended[table_.turn] && table_.turn != own());
    table_.changed.notify_all();
  }

  Table& table_;
  Rank rank_;
  std::size_t round_ = 0;
};

}  // namespace

void in_turns(int size, const std::function<void(RankAgreement&)>& work) {
  Table table(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      TurnAgreement ranks(table, rank);
      ranks.begin();
      work(ranks);
      ranks.end();
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace flatshard_test
