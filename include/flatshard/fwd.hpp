// Public types that may be named before they are defined, for headers that only pass references on.
// Class templates constrained by policies (Sharder) are defined in sharder/sharder.hpp, with their
// default policies.
#pragma once

#include <cstdint>

namespace flatshard {

// core
class Event;
class Stream;
class StreamRef;
class Task;
class MemoryResource;
class Buffer;
class Device;
class HostDevice;
class CudaDevice;
struct CudaOptions;
enum class DeviceKind;
enum class StreamForm;

// tensor
enum class DType : std::uint8_t;
struct Bf16;
struct Half;
struct Float8E4M3;
struct Float8E5M2;
template <class Element>
class TensorRef;

// layout
struct Parameter;
struct RegisteredBuffer;
class Module;
class Model;
class FlatLayout;
class Partition;
class CanonicalIndex;

// ops
struct Adagrad;
struct Adam;
struct AdamW;
struct AMSGrad;
struct NAdam;
template <bool HasMomentum, bool IsCentered>
struct BasicRMSProp;
using RMSProp = BasicRMSProp<false, false>;                // one state
using RMSPropMomentum = BasicRMSProp<true, false>;         // two states
using CenteredRMSProp = BasicRMSProp<false, true>;         // two states
using CenteredRMSPropMomentum = BasicRMSProp<true, true>;  // three states
struct NeedsRMSPropMomentum;
struct SGD;
struct Lion;
class Optimizer;
struct LossScaler;
class KernelTable;

// io
enum class Existing : std::uint8_t;
enum class FileHint : std::uint8_t;
enum class FileKind : std::uint8_t;
struct FileStatus;
struct FolderEntry;
struct FileFaults;
class FileOperations;
class FaultyFileOperations;
class File;
class Folder;
class IoError;
class IntegrityError;
struct FileRange;
struct ReadAheadOptions;
class ReadAhead;
struct WriteBehindOptions;
class WriteBehind;
enum class IoBackend : std::uint8_t;
struct Transfer;
struct TransferResult;
class TransferQueue;
struct MadeQueue;
struct TransferFaults;
class FaultyTransferQueue;
struct SlotStoreOptions;
class SlotStore;
class SlotPipeline;

// comm
class Communicator;
class Solo;
class ThreadWorld;
class ControlChannel;
struct MpiOptions;
class MpiWorld;
class NcclWorld;
class ProcessWorld;
struct LaunchEnvironment;
class RecordingCommunicator;
class FaultyCommunicator;

// policy
namespace strategy {
struct NoShard;
struct ShardOptimizer;
struct ShardGradOp;
struct FullShard;
struct HybridShard;
struct HybridShardGradOp;
struct FullShardSecondary;
}  // namespace strategy

namespace offload {
struct None;
struct Device;
struct Cpu;
struct Nvme;
}  // namespace offload

// sharder
struct NvmeOptions;
struct Options;
struct Plan;
struct CarryOverOptions;
struct ExportedShard;
struct FlatState;
struct TrainingState;
class Engine;
class PendingReport;

// checkpoint
struct TensorDigest;
struct FileDigest;
struct HyperParameters;
struct OptimizerRecord;
struct Manifest;
struct ManifestLimits;
class ManifestError;
struct Retention;
struct FoundCheckpoint;
enum class ExistingStep : std::uint8_t;
struct StageName;
class CheckpointError;
class CheckpointFolder;
class RankAgreement;
class SoloAgreement;
struct CommitOptions;
class Commit;
enum class Writers : std::uint8_t;
struct SaveOptions;
struct SaveReport;
class AsyncSaver;
enum class Readers : std::uint8_t;
struct TensorSource;
struct LoadOptions;
struct LoadReport;
struct ModelOptions;
struct StateTensor;
struct ShardPiece;
namespace safetensors {
enum class Fault : std::uint8_t;
enum class Mode : std::uint8_t;
enum class StoredType : std::uint8_t;
class FormatError;
class TensorSet;
struct Header;
struct ReadLimits;
struct ShardIndex;
struct StoredTensor;
struct TensorEntry;
struct TensorSpec;
}  // namespace safetensors

}  // namespace flatshard
