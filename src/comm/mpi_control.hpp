// Short messages between the processes of a job, on an MPI communicator of their own: failures,
// farewells and signs of life. Nobody waits for them.
#pragma once

#include <flatshard/comm/control_channel.hpp>

#include <array>
#include <cstdint>
#include <functional>
#include <list>

#include "mpi_check.hpp"

namespace flatshard::detail {

/// What is told.
enum class MpiNews : std::int32_t {
  Alive,    // a sign of life
  Report,   // to rank 0: this failure happened
  Verdict,  // from rank 0: this failure was the first
  Left,     // `rank` issues no more than `number` calls in `group`
  Ended,    // to rank 0: `rank` calls nothing any more
  Closed,   // from rank 0: all have ended
  Last      // the sender sends nothing after this
};

/// One message. Of the text only `length` bytes travel.
struct MpiRecord {
  MpiNews news{};
  std::int32_t rank = 0;     // world rank that it is about
  std::int32_t group = 0;    // of Left
  std::int32_t is_dead = 0;  // of a failure: the process of `rank` is gone
  std::uint64_t number = 0;  // of Left: calls
  std::uint64_t length = 0;  // of the text
  std::array<char, 4000> text;

  void set_text(std::string_view message) noexcept;
  Failure failure() const;
  int bytes() const;  // that travel
};

/// Thread-safety: one thread at a time. No function throws for what MPI says: who cannot be reached
/// is found by silence.
class MpiControl {
 public:
  /// Takes over `communicator`, whose errors are returned.
  explicit MpiControl(MPI_Comm communicator);
  /// Ends it; frees the communicator if `is_clean`, which is collective.
  void close(bool is_clean) noexcept;

  /// Copies the record and sends it in its own time.
  void send(Rank to, const MpiRecord& record) noexcept;
  /// The same without allocating; dropped while the one before it is still under way.
  void send_alive(Rank to) noexcept;
  /// Calls handle(record, sender) for everything that has come.
  void receive(const std::function<void(const MpiRecord&, Rank)>& handle) noexcept;
  /// Nothing is on its way out.
  bool is_idle() noexcept;

 private:
  struct Outgoing {
    MpiRecord record;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void post() noexcept;
  static bool is_done(MPI_Request& request) noexcept;
  void start(Outgoing& outgoing, Rank to) noexcept;

  MPI_Comm communicator_;
  MpiRecord incoming_;
  MPI_Request posted_ = MPI_REQUEST_NULL;
  std::list<Outgoing> outgoing_;
  Outgoing alive_;
};

}  // namespace flatshard::detail
