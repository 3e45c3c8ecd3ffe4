#include <flatshard/comm/faulty.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/core/host_stream.hpp>

#include <fmt/format.h>
#include <string>
#include <thread>
#include <utility>

namespace flatshard {

FaultyCommunicator::FaultyCommunicator(Communicator& inner, const Faults& faults)
    : CommunicatorDecorator(inner),
      faults_(faults),
      calls_(std::make_shared<std::atomic<std::int64_t>>(0)) {}

FaultyCommunicator::FaultyCommunicator(std::unique_ptr<Communicator> inner, const Faults& faults,
                                       std::shared_ptr<std::atomic<std::int64_t>> calls)
    : CommunicatorDecorator(std::move(inner)), faults_(faults), calls_(std::move(calls)) {}

void FaultyCommunicator::all_gather(std::string_view label, const void* send, void* receive,
                                    Elements count, DType dtype, StreamRef stream) {
  disturb({Operation::AllGather, label, count, dtype, dtype}, &stream.get());
  inner().all_gather(label, send, receive, count, dtype, stream);
}

void FaultyCommunicator::reduce_scatter(std::string_view label, const void* send, void* receive,
                                        Elements count, DType contribution, DType result,
                                        StreamRef stream) {
  disturb({Operation::ReduceScatter, label, count, contribution, result}, &stream.get());
  inner().reduce_scatter(label, send, receive, count, contribution, result, stream);
}

void FaultyCommunicator::all_reduce(std::string_view label, const void* send, void* receive,
                                    Elements count, DType contribution, DType result,
                                    StreamRef stream) {
  disturb({Operation::AllReduce, label, count, contribution, result}, &stream.get());
  inner().all_reduce(label, send, receive, count, contribution, result, stream);
}

void FaultyCommunicator::broadcast(std::string_view label, void* data, Elements count, DType dtype,
                                   Rank root, StreamRef stream) {
  disturb({Operation::Broadcast, label, count, dtype, dtype, root}, &stream.get());
  inner().broadcast(label, data, count, dtype, root, stream);
}

std::unique_ptr<Communicator> FaultyCommunicator::split(int color, int key) {
  disturb({Operation::Split}, nullptr);
  return std::make_unique<FaultyCommunicator>(inner().split(color, key), faults_, calls_);
}

void FaultyCommunicator::synchronize() {
  disturb({Operation::Synchronize}, nullptr);
  inner().synchronize();
}

void FaultyCommunicator::disturb(const CollectiveCall& call, Stream* stream) {
  const std::int64_t number = calls_->fetch_add(1) + 1;
  const auto concerns = [this](Rank rank) { return rank < 0 || rank == world_rank(); };
  const bool delays = faults_.delay_every > 0 && number % faults_.delay_every == 0 &&
                      faults_.delay.count() > 0 && concerns(faults_.delay_rank);
  const bool fails = number == faults_.fail_call && concerns(faults_.fail_rank);
  if (!delays && !fails) return;
  const auto delay = delays ? faults_.delay : std::chrono::microseconds(0);
  auto fault = [delay, fails, number, text = fails ? to_string(call) : std::string()] {
    std::this_thread::sleep_for(delay);
    if (fails) throw Error(fmt::format("injected failure at call {}: {}", number, text));
  };
  if (faults_.on_stream && stream != nullptr)
    host_stream(*stream).enqueue(std::move(fault));
  else
    fault();
}

}  // namespace flatshard
