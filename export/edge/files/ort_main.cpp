// Acts once with policy.ort: @TITLE@
//
// The observation is one of the bundle's golden vectors; the program ends with 0 where the action is the recorded one.
#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <utility>
#include <vector>

int main(int argc, char **argv)
{
    Ort::Env environment(ORT_LOGGING_LEVEL_WARNING, "policy");
    Ort::SessionOptions options;
    options.SetIntraOpNumThreads(1);
    options.AddConfigEntry("session.load_model_format", "ORT");
    Ort::Session session(environment, argc > 1 ? argv[1] : "policy.ort", options);
    const Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);

@INPUTS@
    const std::vector<const char *> names = {@NAMES@};
    std::vector<Ort::Value> values;
    for (Ort::Value *value : {@POINTERS@}) {
        values.push_back(std::move(*value));
    }

    const char *wanted[] = {"action"};
    const std::vector<Ort::Value> results =
        session.Run(Ort::RunOptions{nullptr}, names.data(), values.data(), values.size(), wanted, 1);

    const @TYPE@ *action = results[0].GetTensorData<@TYPE@>();
    const std::vector<@TYPE@> expected = @EXPECTED@;
    bool equal = true;
    std::cout << "action:";
    for (std::size_t i = 0; i < expected.size(); i++) {
        const double difference = std::fabs(static_cast<double>(action[i]) - static_cast<double>(expected[i]));
        equal = equal && difference <= @TOLERANCE@ * std::fmax(1.0, std::fabs(static_cast<double>(expected[i])));
        std::cout << ' ' << static_cast<double>(action[i]);
    }
    std::cout << (equal ? " PASS" : " FAIL") << std::endl;
    return equal ? 0 : 1;
}
