// Writes down every collective of one rank: who talks to whom, in what order, how many bytes.
#pragma once

#include <flatshard/comm/call.hpp>
#include <flatshard/comm/decorator.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace flatshard {

/// One recorded collective.
struct CollectiveRecord {
  Operation operation;        // as CollectiveCall
  std::string label;          // names the unit
  std::vector<Rank> members;  // world ranks, in the communicator's order
  Elements count;             // as the call gave it
  DType contribution;         // sent
  DType result;               // received
  Bytes bytes;                // this rank must send: bytes_sent()
  friend bool operator==(const CollectiveRecord&, const CollectiveRecord&) = default;
};

/// For messages: all_gather "h.0" of 4096 bfloat16 among 0 1 2 3: 24576 bytes.
std::string to_string(const CollectiveRecord& record);

/// The collectives of one rank in the order of issue. Thread-safe.
class CollectiveLog {
 public:
  void append(CollectiveRecord record);           // at the end
  std::vector<CollectiveRecord> records() const;  // a copy
  Bytes bytes() const;                            // the sum of all records' bytes
  void clear();                                   // forgets all records

 private:
  mutable std::mutex mutex_;
  std::vector<CollectiveRecord> records_;
};

/// Records the four collectives that move data, at issue, before passing them on (split and
/// synchronize are only passed on). Parts made by split record into the same log.
class RecordingCommunicator final : public CommunicatorDecorator {
 public:
  /// `inner` must outlive it; the log starts empty.
  explicit RecordingCommunicator(Communicator& inner);
  /// Owns `inner` and adds to `log`: a part made by split.
  RecordingCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<CollectiveLog> log);

  CollectiveLog& log() const { return *log_; }  // shared with parts made by split

  void all_gather(std::string_view label, const void* send, void* receive, Elements count,
                  DType dtype, StreamRef stream) override;
  void reduce_scatter(std::string_view label, const void* send, void* receive, Elements count,
                      DType contribution, DType result, StreamRef stream) override;
  void all_reduce(std::string_view label, const void* send, void* receive, Elements count,
                  DType contribution, DType result, StreamRef stream) override;
  void broadcast(std::string_view label, void* data, Elements count, DType dtype, Rank root,
                 StreamRef stream) override;
  std::unique_ptr<Communicator> split(int color, int key) override;

 private:
  void record(const CollectiveCall& call);

  std::shared_ptr<CollectiveLog> log_;
};

}  // namespace flatshard
