#include <flatshard/comm/recording.hpp>

#include <fmt/format.h>
#include <utility>

namespace flatshard {

std::string to_string(const CollectiveRecord& record) {
  const CollectiveCall call{record.operation,    record.label,  record.count,
                            record.contribution, record.result, 0};
  std::string text = to_string(call) + " among";
  for (Rank rank : record.members) text += fmt::format(" {}", rank);
  return text + fmt::format(": {} bytes", record.bytes);
}

void CollectiveLog::append(CollectiveRecord record) {
  std::lock_guard lock(mutex_);
  records_.push_back(std::move(record));
}

std::vector<CollectiveRecord> CollectiveLog::records() const {
  std::lock_guard lock(mutex_);
  return records_;
}

Bytes CollectiveLog::bytes() const {
  std::lock_guard lock(mutex_);
  Bytes sum = 0;
  for (const CollectiveRecord& record : records_) sum += record.bytes;
  return sum;
}

void CollectiveLog::clear() {
  std::lock_guard lock(mutex_);
  records_.clear();
}

RecordingCommunicator::RecordingCommunicator(Communicator& inner)
    : CommunicatorDecorator(inner), log_(std::make_shared<CollectiveLog>()) {}

RecordingCommunicator::RecordingCommunicator(std::unique_ptr<Communicator> inner,
                                             std::shared_ptr<CollectiveLog> log)
    : CommunicatorDecorator(std::move(inner)), log_(std::move(log)) {}

void RecordingCommunicator::all_gather(std::string_view label, const void* send, void* receive,
                                       Elements count, DType dtype, StreamRef stream) {
  record({Operation::AllGather, label, count, dtype, dtype});
  inner().all_gather(label, send, receive, count, dtype, stream);
}

void RecordingCommunicator::reduce_scatter(std::string_view label, const void* send, void* receive,
                                           Elements count, DType contribution, DType result,
                                           StreamRef stream) {
  record({Operation::ReduceScatter, label, count, contribution, result});
  inner().reduce_scatter(label, send, receive, count, contribution, result, stream);
}

void RecordingCommunicator::all_reduce(std::string_view label, const void* send, void* receive,
                                       Elements count, DType contribution, DType result,
                                       StreamRef stream) {
  record({Operation::AllReduce, label, count, contribution, result});
  inner().all_reduce(label, send, receive, count, contribution, result, stream);
}

void RecordingCommunicator::broadcast(std::string_view label, void* data, Elements count,
                                      DType dtype, Rank root, StreamRef stream) {
  record({Operation::Broadcast, label, count, dtype, dtype, root});
  inner().broadcast(label, data, count, dtype, root, stream);
}

std::unique_ptr<Communicator> RecordingCommunicator::split(int color, int key) {
  return std::make_unique<RecordingCommunicator>(inner().split(color, key), log_);
}

void RecordingCommunicator::record(const CollectiveCall& call) {
  const auto ranks = members();
  log_->append({call.operation, std::string(call.label),
                std::vector<Rank>(ranks.begin(), ranks.end()), call.count, call.contribution,
                call.result, bytes_sent(call, rank(), size())});
}

}  // namespace flatshard
