#include <flatshard/comm/recording.hpp>
#include <flatshard/comm/threads.hpp>

#include <doctest/doctest.h>

#include "worlds.hpp"

using namespace conformance;

TEST_CASE("every collective of a rank is recorded with its members and bytes, also in parts") {
  constexpr int size = 4;
  std::vector<std::vector<CollectiveRecord>> seen(size);
  std::vector<Bytes> bytes(size);
  ThreadWorld{size}.run([&](Communicator& world) {
    RecordingCommunicator comm(world);
    InlineStream stream;
    std::vector<float> x(64), y(64);
    const auto f32 = DType::Float32, b16 = DType::BFloat16;
    comm.all_gather("a", x.data(), y.data(), 5, f32, stream);
    const auto part = comm.split(comm.rank() / 2, -comm.rank());
    part->reduce_scatter("b", x.data(), y.data(), 6, b16, f32, stream);
    comm.synchronize();
    comm.all_reduce("c", x.data(), y.data(), 8, b16, f32, stream);
    part->split(0, 0)->broadcast("d", x.data(), 3, f32, 1, stream);
    seen[index(comm.rank())] = comm.log().records();
    bytes[index(comm.rank())] = comm.log().bytes();
    comm.log().clear();
    expect(comm.log().records().empty() && comm.log().bytes() == 0, "a cleared log");
  });
  using enum Operation;
  const auto f32 = DType::Float32, b16 = DType::BFloat16;
  const std::vector<Rank> all{0, 1, 2, 3};
  for (Rank rank = 0; rank < size; ++rank) {
    CAPTURE(rank);
    const std::vector<Rank> part = rank < 2 ? std::vector<Rank>{1, 0} : std::vector<Rank>{3, 2};
    const bool is_root = rank == part[1];
    const std::vector<CollectiveRecord> expected{
        {AllGather, "a", all, 5, f32, f32, 3 * 5 * 4},
        {ReduceScatter, "b", part, 6, b16, f32, 1 * 6 * 2},
        {AllReduce, "c", all, 8, b16, f32, 3 * 8 * (2 + 4) / 4},
        {Broadcast, "d", part, 3, f32, f32, is_root ? 3 * 4 : 0}};
    CHECK(seen[index(rank)] == expected);
    CHECK(bytes[index(rank)] == 60 + 12 + 36 + (is_root ? 12 : 0));
  }
  CHECK(to_string(seen[3][1]) ==
        "reduce_scatter \"b\" of 6 bfloat16 to float32 among 3 2: 12 bytes");
}
