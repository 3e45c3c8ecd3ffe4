#include "../sharded_trainer.hpp"

namespace train_gpt {

template TrainerType<flatshard::Half>
    trainer_type<flatshard::precision::Fp16MixedScaling<flatshard::LossScaling::Torch>>(Strategy);
template TrainerType<flatshard::Half> trainer_type<
    flatshard::precision::Fp16MixedScaling<flatshard::LossScaling::DeepSpeed>>(Strategy);
template TrainerType<flatshard::Half>
    trainer_type<flatshard::precision::Fp16MixedScaling<flatshard::LossScaling::Static>>(Strategy);

}  // namespace train_gpt
