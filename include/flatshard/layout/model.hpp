// A model is names and shapes: modules, their parameters, ties, registered buffers. Nothing here
// allocates element memory; a Model is a plain value that a Sharder copies.
#pragma once

#include <flatshard/tensor/dtype.hpp>
#include <flatshard/tensor/tensor_ref.hpp>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

using Shape = std::vector<std::int64_t>;  // dimensions, outermost first

/// Handle of a parameter of a Model: its position in model order. Trivially copyable.
struct Parameter {
  int index = -1;  // in model order
  friend constexpr bool operator==(Parameter, Parameter) = default;
};

/// Handle of a registered buffer (not trained, replicated on every rank).
struct RegisteredBuffer {
  int index = -1;  // of Model::buffers()
  friend constexpr bool operator==(RegisteredBuffer, RegisteredBuffer) = default;
};

/// What may differ from parameter to parameter.
struct ParameterOptions {
  bool requires_grad = true;        // false: frozen
  std::optional<DType> dtype = {};  // compute dtype; none: the precision policy's
  int group = 0;                    // hyper-parameter group (Options::groups of the Sharder)
  int time_group = 0;  // parameters of different ones never share a flat, so they count their
                       // updates apart: for those that begin to train later (carry_over)
  friend bool operator==(const ParameterOptions&, const ParameterOptions&) = default;
};

/// What a module promises of its calls.
struct ModuleOptions {
  int uses = 1;  // calls of forward (and of backward) in one micro-step; 0 only where a tie made
                 // the module, to hold the storage, and nobody asked for it by name
  bool backward_overwrites = false;  // backward writes every gradient element: no zeroing needed
  bool skip_when_unused = false;     // not called in a step: no update at all (else zero gradient)
  friend bool operator==(const ModuleOptions&, const ModuleOptions&) = default;
};

/// A parameter as the Model knows it.
struct ParameterSpec {
  std::string name;          // full: module name + "." + name
  Shape shape;               // row-major
  ParameterOptions options;  // as given to add()
  int module = 0;            // whose unit holds the storage (lowest module covering all uses)
  std::vector<std::string> aliases;                   // other full names of the same storage
  std::vector<int> users;                             // modules that added or tied it, ascending
  Elements numel() const { return numel_of(shape); }  // elements
  friend bool operator==(const ParameterSpec&, const ParameterSpec&) = default;
};

/// A registered buffer as the Model knows it.
struct BufferSpec {
  std::string name;                                   // full: module name + "." + name
  Shape shape;                                        // row-major
  DType dtype;                                        // any of the table
  int module = 0;                                     // that added it
  Elements numel() const { return numel_of(shape); }  // elements
  friend bool operator==(const BufferSpec&, const BufferSpec&) = default;
};

/// A module as the Model knows it.
struct ModuleSpec {
  std::string name;             // dotted; "" is the root
  ModuleOptions options;        // as given to module()
  std::vector<int> parameters;  // storages that live here, in model order
  std::vector<int> tied;        // parameters used here that live in another module, in model order
  friend bool operator==(const ModuleSpec&, const ModuleSpec&) = default;
};

class Model;

/// Handle of a module: the scope of one forward or backward call. Valid while its Model lives at
/// the same address (the index stays valid for every copy of the Model).
class Module {
 public:
  /// Made by Model::module.
  Module(Model& model, int index) : model_(&model), index_(index) {}
  int index() const { return index_; }  // in module order
  /// Adds a parameter (row-major, `shape`); throws UsageError on a name that is taken or has an
  /// empty component, a negative dimension, a non-floating dtype, a negative group, or dimensions
  /// (zeros left out) whose product is above 2^63 - 1.
  Parameter add(std::string_view name, Shape shape, ParameterOptions options = {});
  /// Another name here for the storage of `parameter`. The storage moves to the lowest module that
  /// exists and whose name is a dotted prefix of all its users' names, at last to the root "",
  /// which is made if need be. Its index does not change.
  void tie(std::string_view name, Parameter parameter);
  /// Adds a buffer of any dtype; throws as add() does.
  RegisteredBuffer add_buffer(std::string_view name, Shape shape, DType dtype);

 private:
  Model* model_;
  int index_;
};

/// A plain value. Not thread-safe while it is being built.
class Model {
 public:
  /// The module of that name ("h.0"; "" is the root), made at first use. Module order is the order
  /// of first use; parameter order is the order of add. Later calls may leave the options out, or
  /// set them if they were left out so far; throws UsageError when they contradict earlier ones.
  Module module(std::string_view name, ModuleOptions options = {});
  /// The module "".
  Module root(ModuleOptions options = {}) { return module("", options); }

  const std::vector<ModuleSpec>& modules() const { return modules_; }  // in module order
  /// In model order.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  /// in the order of add_buffer()
  const std::vector<BufferSpec>& buffers() const { return buffers_; }
  /// The parameter of that full name or alias; throws UsageError naming the nearest names.
  Parameter find(std::string_view name) const;
  friend bool operator==(const Model&, const Model&) = default;

 private:
  friend class Module;
  struct Named {  // what a full name stands for: one of the two is >= 0
    int parameter = -1;
    int buffer = -1;
    friend bool operator==(const Named&, const Named&) = default;
  };

  int make_module(std::string_view name, const ModuleOptions& options);
  std::string claim_name(int module, std::string_view name, Named named);
  int home_of(const std::vector<int>& users);
  void move_storage(int parameter, int home);

  std::vector<ModuleSpec> modules_;
  std::vector<ParameterSpec> parameters_;
  std::vector<BufferSpec> buffers_;
  std::map<std::string, int, std::less<>> module_of_name_;
  std::map<std::string, Named, std::less<>> named_;
};

}  // namespace flatshard
