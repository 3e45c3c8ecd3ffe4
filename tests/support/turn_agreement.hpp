// Ranks as threads of which one runs at a time: every run does the same in the same order.
#pragma once

#include <flatshard/checkpoint/commit.hpp>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace flatshard_test {

/// Calls work(ranks) for each of `size` ranks and waits for all. A rank runs until it waits for the
/// others, or ends; then the next one does. Whatever the work throws is lost: it should not throw.
void in_turns(int size, const std::function<void(flatshard::RankAgreement& ranks)>& work);

}  // namespace flatshard_test
