// A model is names and shapes: modules, their parameters, ties, registered buffers. Nothing here
// allocates element memory; a Model is a plain value that a Sharder copies.
#pragma once

#include <flatshard/tensor/dtype.hpp>
#include <flatshard/tensor/tensor_ref.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

using Shape = std::vector<std::int64_t>;

/// Handle of a parameter of a Model: its position in model order. Trivially copyable.
struct Parameter {
  int index = -1;
  friend constexpr bool operator==(Parameter, Parameter) = default;
};

/// Handle of a registered buffer (not trained, replicated on every rank).
struct RegisteredBuffer {
  int index = -1;
  friend constexpr bool operator==(RegisteredBuffer, RegisteredBuffer) = default;
};

struct ParameterOptions {
  bool requires_grad = true;        // false: frozen
  std::optional<DType> dtype = {};  // compute dtype; none: the precision policy's
  int group = 0;                    // hyper-parameter group (Options::groups of the Sharder)
};

struct ModuleOptions {
  int uses = 1;                      // calls of forward (and of backward) in one micro-step
  bool backward_overwrites = false;  // backward writes every gradient element: no zeroing needed
  bool skip_when_unused = false;     // not called in a step: no update at all (else zero gradient)
};

struct ParameterSpec {
  std::string name;  // full: module name + "." + name
  Shape shape;
  ParameterOptions options;
  int module = 0;  // whose unit holds the storage (lowest module covering all uses)
  std::vector<std::string> aliases;  // other full names of the same storage
  Elements numel() const { return numel_of(shape); }
  friend bool operator==(const ParameterSpec&, const ParameterSpec&);
};

struct BufferSpec {
  std::string name;
  Shape shape;
  DType dtype;
  int module = 0;
};

struct ModuleSpec {
  std::string name;
  ModuleOptions options;
  std::vector<int> parameters;  // storages that live here, in model order
  std::vector<int> tied;        // parameters used here that live in another module
};

class Model;

/// Handle of a module: the scope of one forward or backward call. Valid while its Model lives (the
/// index stays valid for every copy of the Model).
class Module {
 public:
  Module(Model& model, int index) : model_(&model), index_(index) {}
  int index() const { return index_; }
  /// Adds a parameter (row-major, `shape`); throws UsageError on a duplicate name, a negative
  /// dimension, a non-floating dtype, or more than 2^63 - 1 elements.
  Parameter add(std::string_view name, Shape shape, ParameterOptions options = {});
  /// Another name here for the storage of `parameter`; the storage moves to the lowest module whose
  /// name is a prefix of all its users' names (at last the root "").
  void tie(std::string_view name, Parameter parameter);
  RegisteredBuffer add_buffer(std::string_view name, Shape shape, DType dtype);

 private:
  Model* model_;
  int index_;
};

class Model {
 public:
  /// The module of that name ("h.0"; "" is the root), made at first use. Module order is the order
  /// of first use; parameter order is the order of add.
  Module module(std::string_view name, ModuleOptions options = {});
  Module root(ModuleOptions options = {}) { return module("", options); }

  const std::vector<ModuleSpec>& modules() const { return modules_; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const std::vector<BufferSpec>& buffers() const { return buffers_; }
  /// The parameter of that full name or alias; throws UsageError naming the nearest names.
  Parameter find(std::string_view name) const;

 private:
  friend class Module;
  std::vector<ModuleSpec> modules_;
  std::vector<ParameterSpec> parameters_;
  std::vector<BufferSpec> buffers_;
};

}  // namespace flatshard
