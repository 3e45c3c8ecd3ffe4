#include "../sharded_trainer.hpp"

namespace train_gpt {

template TrainerType<flatshard::Half> trainer_type<
    flatshard::precision::Fp16MixedScaling<flatshard::LossScaling::Torch, float>>(Strategy);
template TrainerType<flatshard::Half> trainer_type<
    flatshard::precision::Fp16MixedScaling<flatshard::LossScaling::DeepSpeed, float>>(Strategy);
template TrainerType<flatshard::Half> trainer_type<
    flatshard::precision::Fp16MixedScaling<flatshard::LossScaling::Static, float>>(Strategy);

}  // namespace train_gpt
