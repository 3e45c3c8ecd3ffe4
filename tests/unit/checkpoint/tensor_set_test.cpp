#include <doctest/doctest.h>

#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/io/io_error.hpp>

#include "checkpoint/frame.hpp"
#include "random.hpp"
#include "scratch_folder.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

using namespace flatshard::safetensors;
using flatshard::Bytes;
using flatshard::IoError;
using flatshard::UsageError;
using flatshard_test::entry_json;
using flatshard_test::file_of;
using flatshard_test::ScratchFolder;
using flatshard_test::write_file;

namespace {

const std::string one = "model-00001-of-00002.safetensors",
                  two = "model-00002-of-00002.safetensors";

std::string with_tensor(const std::string& name, const std::string& data) {
  const std::string size = std::to_string(data.size());
  return file_of("{" + entry_json(name, "U8", size, "0," + size) + "}", data);
}

void write_index(const ScratchFolder& folder, const std::string& second_file = two) {
  const ShardIndex index{8, {{"a", one}, {"b", second_file}}};
  write_file(folder / "model.safetensors.index.json", encode(index));
}

void write_good_set(const ScratchFolder& folder) {
  write_file(folder / one, with_tensor("a", "aaaa"));
  write_file(folder / two, with_tensor("b", "bcde"));
  write_index(folder);
}

std::string read_all(const TensorSet& set, const std::string& name) {
  const TensorEntry& entry = *set.at(name).entry;
  std::string bytes(static_cast<std::size_t>(entry.end - entry.begin), '?');
  set.read(name, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

Fault fault_of_set(const std::string& path) {
  try {
    TensorSet::open(path);
  } catch (const FormatError& error) {
    CHECK(error.path().find(std::filesystem::path(path).filename().string()) != std::string::npos);
    return error.kind();
  }
  FAIL("accepted");
  return {};
}

}  // namespace

TEST_CASE("a set is opened by its folder, its index, or one of its files") {
  const ScratchFolder folder;
  write_good_set(folder);
  for (const std::string& path : {folder.path(), folder / "model.safetensors.index.json"}) {
    const TensorSet set = TensorSet::open(path);
    CHECK(set.warnings().empty());
    CHECK(set.files().size() == 2);
    CHECK(set.tensors().size() == 2);
    CHECK(set.files()[set.at("b").file].name == two);
    CHECK(read_all(set, "a") == "aaaa");
    CHECK(read_all(set, "b") == "bcde");
  }
  const TensorSet single = TensorSet::open(folder / two);
  CHECK(single.files().at(0).name == two);
  CHECK(read_all(single, "b") == "bcde");
}

TEST_CASE("an index in the working folder needs no path") {
  const ScratchFolder folder;
  write_good_set(folder);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  CHECK_NOTHROW(TensorSet::open("model.safetensors.index.json"));
  std::filesystem::current_path(before);
}

TEST_CASE("a set may be moved; what it gave stays valid") {
  const ScratchFolder folder;
  write_good_set(folder);
  TensorSet first = TensorSet::open(folder.path());
  const StoredTensor tensor = first.at("b");
  const TensorSet second = std::move(first);
  CHECK(tensor.entry == second.at("b").entry);
  std::string bytes(2, '?');
  second.read(tensor, 1, std::as_writable_bytes(std::span(bytes)));
  CHECK(bytes == "cd");
}

TEST_CASE("bytes are read from any place of a tensor and never beyond its end") {
  const ScratchFolder folder;
  write_good_set(folder);
  const TensorSet set = TensorSet::open(folder.path());
  const std::string whole = "bcde";
  for (std::size_t first = 0; first <= whole.size(); ++first) {
    for (std::size_t count = 0; first + count <= whole.size(); ++count) {
      std::string bytes(count, '?');
      set.read("b", static_cast<Bytes>(first), std::as_writable_bytes(std::span(bytes)));
      CHECK(bytes == whole.substr(first, count));
    }
  }
  std::string bytes(2, '?');
  const auto into = std::as_writable_bytes(std::span(bytes));
  CHECK_THROWS_AS(set.read("b", 3, into), UsageError);
  CHECK_THROWS_AS(set.read("b", 5, into.first(0)), UsageError);
  CHECK_THROWS_AS(set.read("b", -1, into), UsageError);
  CHECK_THROWS_AS(set.read("b", std::numeric_limits<Bytes>::max(), into), UsageError);
  CHECK(bytes == "??");
}

TEST_CASE("an unknown tensor is told with the names nearest to it") {
  const ScratchFolder folder;
  write_file(folder / "x.safetensors", with_tensor("h.0.weight", "w"));
  const TensorSet set = TensorSet::open(folder / "x.safetensors");
  try {
    set.at("h.0.weigth");
    FAIL("found");
  } catch (const UsageError& error) {
    const std::string what = error.what();
    CHECK(what.find("\"h.0.weigth\"") != what.npos);
    CHECK(what.find("\"h.0.weight\"") != what.npos);
  }
}

TEST_CASE("a shard that is no regular file of the folder is refused, whatever it leads to") {
  const ScratchFolder folder, elsewhere;
  write_file(elsewhere / "b", with_tensor("b", "bcde"));
  write_file(folder / "real", with_tensor("b", "bcde"));
  write_good_set(folder);
  const std::string shard = folder / "shard";
  write_index(folder, "shard");
  const auto refused = [&] {
    return fault_of_set(folder.path() + "/model.safetensors.index.json");
  };
  std::filesystem::create_symlink(elsewhere / "b", shard);
  CHECK(refused() == Fault::NotARegularFile);
  std::filesystem::remove(shard);
  std::filesystem::create_symlink("real", shard);
  CHECK(refused() == Fault::NotARegularFile);
  std::filesystem::remove(shard);
  std::filesystem::create_symlink("/dev/zero", shard);
  CHECK(refused() == Fault::NotARegularFile);
  std::filesystem::remove(shard);
  REQUIRE(::mkfifo(shard.c_str(), 0600) == 0);
  CHECK(refused() == Fault::NotARegularFile);
  std::filesystem::remove(shard);
  std::filesystem::create_directory(shard);
  CHECK(refused() == Fault::NotARegularFile);
  std::filesystem::remove(shard);
  CHECK(refused() == Fault::MissingFile);
  std::filesystem::rename(folder / "real", shard);
  CHECK_NOTHROW(TensorSet::open(folder.path()));
}

TEST_CASE("a path of the user's own may be a link, but must lead to a file") {
  const ScratchFolder folder;
  write_file(folder / "real", with_tensor("b", "bcde"));
  std::filesystem::create_symlink("real", folder / "model.safetensors");
  CHECK(read_all(TensorSet::open(folder.path()), "b") == "bcde");
  CHECK(read_all(TensorSet::open(folder / "model.safetensors"), "b") == "bcde");
  CHECK_THROWS_AS(TensorSet::open("/dev/zero"), IoError);
  try {
    TensorSet::open(folder / "none");
    FAIL("opened");
  } catch (const IoError& error) {
    CHECK(error.code() == ENOENT);
  }
}

TEST_CASE("an index above the limit is refused before it is read") {
  const ScratchFolder folder;
  write_good_set(folder);
  try {
    TensorSet::open(folder.path(), {.index_bytes = 10});
    FAIL("accepted");
  } catch (const FormatError& error) {
    CHECK(error.kind() == Fault::IndexTooLarge);
    CHECK(error.path() == folder / "model.safetensors.index.json");
    CHECK(error.offset() == -1);  // not read: no byte of it is known
  }
}

TEST_CASE("what the compatible mode tolerates is reported with its file") {
  const ScratchFolder folder;
  const std::string path = folder / "x.safetensors";
  write_file(path, file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0}})", "a"));
  CHECK(fault_of_set(path) == Fault::UnknownField);
  const TensorSet set = TensorSet::open(path, {}, Mode::Compatible);
  REQUIRE(set.warnings().size() == 1);
  CHECK(set.warnings()[0].find(path) == 0);
}

TEST_CASE("tensors split, written with an index and opened again are the same") {
  auto random = flatshard_test::generator();
  for (int round = 0; round < 20; ++round) {
    const ScratchFolder folder;
    std::vector<TensorSpec> tensors;
    for (std::uint64_t i = random() % 6; i > 0; --i)
      tensors.push_back(
          {"t" + std::to_string(i), StoredType::U8, {static_cast<int>(random() % 9)}});
    const auto files = split_into_files(tensors, 1 + static_cast<Bytes>(random() % 12));
    const auto count = static_cast<std::int64_t>(files.size());
    ShardIndex index{0, {}};
    std::map<std::string, std::string> data;
    for (std::int64_t i = 0; i < count; ++i) {
      const Header header = plan_header(files[static_cast<std::size_t>(i)]);
      std::string bytes = encode(header);
      for (const TensorEntry& tensor : header.tensors) {
        std::string& value = data[tensor.name];
        for (Bytes b = tensor.begin; b < tensor.end; ++b) value += static_cast<char>(random());
        bytes += value;
        *index.total_size += tensor.end - tensor.begin;
        index.weight_map.emplace_back(tensor.name, shard_file_name("model", i, count));
      }
      write_file(folder / shard_file_name("model", i, count), bytes);
    }
    if (count > 1) write_file(folder / "model.safetensors.index.json", encode(index));
    const TensorSet set = TensorSet::open(folder.path());
    CHECK(set.warnings().empty());
    CHECK(set.tensors().size() == tensors.size());
    for (const auto& [name, value] : data) CHECK(read_all(set, name) == value);
  }
}
