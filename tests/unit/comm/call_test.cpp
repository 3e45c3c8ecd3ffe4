#include <flatshard/comm/call.hpp>

#include <doctest/doctest.h>

using namespace flatshard;

TEST_CASE("calls are told in words") {
  using enum Operation;
  const auto f32 = DType::Float32, b16 = DType::BFloat16;
  CHECK(to_string(CollectiveCall{AllGather, "h.0", 4096, b16, b16}) ==
        "all_gather \"h.0\" of 4096 bfloat16");
  CHECK(to_string(CollectiveCall{ReduceScatter, "h.0", 7, b16, f32}) ==
        "reduce_scatter \"h.0\" of 7 bfloat16 to float32");
  CHECK(to_string(CollectiveCall{Broadcast, "wte", 3, f32, f32, 2}) ==
        "broadcast \"wte\" of 3 float32 from rank 2");
  CHECK(to_string(CollectiveCall{Synchronize}) == "synchronize");
  CHECK(to_string(CollectiveCall{Split}) == "split");
}

TEST_CASE("bytes sent are those of the ring algorithms, summed over ranks") {
  using enum Operation;
  const auto f32 = DType::Float32, b16 = DType::BFloat16;
  for (int size = 1; size <= 9; ++size) {
    for (Elements count : {0, 1, 12, 2520}) {
      Bytes gather = 0, scatter = 0, reduce = 0, cast = 0;
      for (Rank rank = 0; rank < size; ++rank) {
        gather += bytes_sent({AllGather, "x", count, b16, b16}, rank, size);
        scatter += bytes_sent({ReduceScatter, "x", count, b16, f32}, rank, size);
        reduce += bytes_sent({AllReduce, "x", count, b16, f32}, rank, size);
        cast += bytes_sent({Broadcast, "x", count, f32, f32, size - 1}, rank, size);
      }
      // Every rank receives what it does not have.
      CHECK(gather == Bytes{2} * count * size * (size - 1));
      CHECK(scatter == Bytes{2} * count * size * (size - 1));
      CHECK(cast == Bytes{4} * count * (size - 1));
      if (count % size == 0) CHECK(reduce == Bytes{2 + 4} * count * (size - 1));
      CHECK(bytes_sent({Split}, 0, size) == 0);
      CHECK(bytes_sent({Synchronize}, 0, size) == 0);
    }
  }
}

TEST_CASE("sums by exchange: slices cover, scratch holds the others' contributions") {
  using enum Operation;
  const auto f32 = DType::Float32, b16 = DType::BFloat16;
  for (int size = 1; size <= 9; ++size) {
    for (Elements count : {0, 1, 63, 64, 65, 5000, 100'000}) {
      const Elements slice = detail::exchange_slice(count, size);
      CHECK(slice % 64 == 0);
      CHECK(slice * size >= count);
      CHECK(slice * (size - 1) < count + 64 * size);
      const auto padded = [](Bytes bytes) { return (bytes + 255) / 256 * 256; };
      const CollectiveCall scatter{ReduceScatter, "x", count, b16, f32};
      CHECK(detail::exchange_bytes(scatter, size) == (size - 1) * padded(2 * count));
      const CollectiveCall reduce{AllReduce, "x", count, f32, f32};
      const bool small = 4 * count * size <= 64 * 1024;
      CHECK(detail::is_small_exchange(reduce, size) == small);
      CHECK(detail::exchange_bytes(reduce, size) ==
            (size - 1) * padded(4 * (small ? count : slice)));
      CHECK(detail::exchange_bytes({AllGather, "x", count, f32, f32}, size) == 0);
    }
  }
}
