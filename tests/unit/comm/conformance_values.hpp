// Conformance of a Communicator: the values that collectives leave.
#pragma once

#include <flatshard/comm/call.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>

#include "elements.hpp"

namespace conformance {

// 0, 1, odd, and on both sides of what travels by copy (2048 bytes).
inline const std::vector<Elements> usual_counts{0, 1, 7, 33, 255, 257, 1025};
// A slice of it takes several blocks; slow to check, so only where it says so.
constexpr Elements large_count = 150'001;

inline std::string title(const CollectiveCall& call, const Communicator& comm) {
  return to_string(call) + " on rank " + std::to_string(comm.rank()) + " of " +
         std::to_string(comm.size());
}

/// Runs `check(comm, stream, count)` on every rank, for every size and count.
template <class Check>
void for_worlds(Worlds& worlds, const std::vector<Elements>& counts, Check check) {
  for (int size : worlds.sizes()) {
    CAPTURE(size);
    CHECK_NOTHROW(worlds.run(size, [&](Communicator& comm) {
      const auto stream = worlds.make_stream();
      for (Elements count : counts) check(comm, *stream, count);
    }));
  }
}

inline void check_all_gather(Communicator& comm, Stream& stream, Elements count, DType dtype) {
  const CollectiveCall call{Operation::AllGather, "gathered", count, dtype, dtype};
  const Bytes part = count * size_of(dtype);
  std::vector<std::vector<std::byte>> parts;
  for (Rank rank = 0; rank < comm.size(); ++rank) parts.push_back(random_bytes(1, rank, part));

  Guarded send(part), receive(part * comm.size()), in_place(part * comm.size());
  send.fill(parts[index(comm.rank())]);
  std::byte* own = in_place.data() + comm.rank() * part;
  if (part > 0) std::memcpy(own, parts[index(comm.rank())].data(), index(part));
  comm.all_gather("gathered", send.data(), receive.data(), count, dtype, stream);
  comm.all_gather("gathered", own, in_place.data(), count, dtype, stream);
  stream.synchronize();
  expect_content(receive, joined(parts), title(call, comm));
  expect_content(in_place, joined(parts), title(call, comm) + " in place");
  expect_content(send, parts[index(comm.rank())], title(call, comm) + ", send");
}

inline void check_broadcast(Communicator& comm, Stream& stream, Elements count, DType dtype) {
  const Bytes bytes = count * size_of(dtype);
  for (Rank root : {0, comm.size() / 2, comm.size() - 1}) {
    const CollectiveCall call{Operation::Broadcast, "cast", count, dtype, dtype, root};
    Guarded data(bytes);
    data.fill(random_bytes(2, comm.rank(), bytes));
    comm.broadcast("cast", data.data(), count, dtype, root, stream);
    stream.synchronize();
    expect_content(data, random_bytes(2, root, bytes), title(call, comm));
  }
}

template <class Element, class Result>
void check_reduce_scatter(Communicator& comm, Stream& stream, Elements count) {
  const DType from = dtype_of<Element>, to = dtype_of<Result>;
  const CollectiveCall call{Operation::ReduceScatter, "scattered", count, from, to};
  std::vector<std::vector<std::byte>> inputs;
  for (Rank rank = 0; rank < comm.size(); ++rank)
    inputs.push_back(random_elements<Element>(3, rank, count * comm.size()));
  const auto whole = reduced<Element, Result>(inputs);
  const Bytes part = count * size_of(to);
  const std::span mine(whole.data() + comm.rank() * part, index(part));

  Guarded send(std::int64_t(inputs[0].size())), receive(part);
  send.fill(inputs[index(comm.rank())]);
  comm.reduce_scatter("scattered", send.data(), receive.data(), count, from, to, stream);
  stream.synchronize();
  expect_content(receive, mine, title(call, comm));
  expect_content(send, inputs[index(comm.rank())], title(call, comm) + ", send");
  if constexpr (std::is_same_v<Element, Result>) {
    std::byte* own = send.data() + comm.rank() * part;
    comm.reduce_scatter("scattered", send.data(), own, count, from, to, stream);
    stream.synchronize();
    auto expected = inputs[index(comm.rank())];
    std::copy(mine.begin(), mine.end(), expected.begin() + comm.rank() * part);
    expect_content(send, expected, title(call, comm) + " in place");
  }
}

template <class Element, class Result>
void check_all_reduce(Communicator& comm, Stream& stream, Elements count) {
  const DType from = dtype_of<Element>, to = dtype_of<Result>;
  const CollectiveCall call{Operation::AllReduce, "reduced", count, from, to};
  std::vector<std::vector<std::byte>> inputs;
  for (Rank rank = 0; rank < comm.size(); ++rank)
    inputs.push_back(random_elements<Element>(4, rank, count));
  const auto expected = reduced<Element, Result>(inputs);

  Guarded send(std::int64_t(inputs[0].size())), receive(count * size_of(to));
  send.fill(inputs[index(comm.rank())]);
  comm.all_reduce("reduced", send.data(), receive.data(), count, from, to, stream);
  stream.synchronize();
  expect_content(receive, expected, title(call, comm));
  expect_content(send, inputs[index(comm.rank())], title(call, comm) + ", send");
  if constexpr (std::is_same_v<Element, Result>) {
    comm.all_reduce("reduced", send.data(), send.data(), count, from, to, stream);
    stream.synchronize();
    expect_content(send, expected, title(call, comm) + " in place");
  }
}

inline void gathers_and_broadcasts(Worlds& worlds, const std::vector<Elements>& counts) {
  for (const DTypeInfo& row : dtype_table) {
    CAPTURE(std::string(row.name));
    for_worlds(worlds, counts, [&](Communicator& comm, Stream& stream, Elements count) {
      check_all_gather(comm, stream, count, row.dtype);
      check_broadcast(comm, stream, count, row.dtype);
    });
  }
}

template <class Element, class Result>
void reductions(Worlds& worlds, const std::vector<Elements>& counts) {
  CAPTURE(std::string(name_of(dtype_of<Element>)));
  CAPTURE(std::string(name_of(dtype_of<Result>)));
  for_worlds(worlds, counts, [&](Communicator& comm, Stream& stream, Elements count) {
    check_reduce_scatter<Element, Result>(comm, stream, count);
    check_all_reduce<Element, Result>(comm, stream, count);
  });
}

inline void reductions_of_all_dtypes(Worlds& worlds, const std::vector<Elements>& counts) {
  reductions<double, double>(worlds, counts);
  reductions<float, float>(worlds, counts);
  reductions<float, Bf16>(worlds, counts);
  reductions<float, Half>(worlds, counts);
  reductions<Bf16, Bf16>(worlds, counts);
  reductions<Bf16, float>(worlds, counts);
  reductions<Half, Half>(worlds, counts);
  reductions<Half, float>(worlds, counts);
}

/// Every collective works among the parts of a split, and parts of parts.
inline void check_part(Communicator& part, Stream& stream) {
  check_all_gather(part, stream, 33, DType::Float32);
  check_broadcast(part, stream, 33, DType::Int64);
  check_reduce_scatter<float, float>(part, stream, 1025);
  check_all_reduce<Bf16, float>(part, stream, 33);
}

inline void splits(Worlds& worlds) {
  for (int size : worlds.sizes()) {
    CAPTURE(size);
    CHECK_NOTHROW(worlds.run(size, [&](Communicator& world) {
      const auto stream = worlds.make_stream();
      for (int width = 1; width <= size; ++width) {
        if (size % width != 0) continue;
        const auto group = world.split(world.rank() / width, world.rank());
        const auto replicas = world.split(world.rank() % width, world.rank());
        expect(group->size() == width && replicas->size() == size / width, "sizes of the parts");
        expect(group->rank() == world.rank() % width, "rank in the group");
        expect(replicas->rank() == world.rank() / width, "rank among replicas");
        for (int i = 0; i < width; ++i)
          expect(group->members()[index(i)] == world.rank() / width * width + i, "group members");
        for (int i = 0; i < size / width; ++i)
          expect(replicas->members()[index(i)] == world.rank() % width + i * width, "replicas");
        check_part(*group, *stream);
        check_part(*replicas, *stream);
        const auto half = group->split(group->rank() % 2, 0);
        expect(half->members()[index(half->rank())] == world.rank(),
               "world ranks in a part's part");
        check_part(*half, *stream);
      }
      const auto reversed = world.split(7, -world.rank());
      expect(reversed->rank() == size - 1 - world.rank(), "order by key");
      expect(reversed->members()[0] == size - 1, "members in the order of keys");
      check_part(*reversed, *stream);
    }));
  }
}

}  // namespace conformance
