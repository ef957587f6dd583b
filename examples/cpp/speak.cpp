// Speaks with FastPitch and HiFi-GAN as `melforge export` writes them, by ONNX Runtime's C++ API alone.
// How to build and run it: examples/cpp/README.md.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr int RATE = 22050;             // samples per second
constexpr float LONGEST_SYMBOL = 75.f;  // frames; what is longer is an error of the network
constexpr double FADE = 0.004;          // seconds at both ends of an utterance
constexpr double LONGEST_PAUSE = 3600;  // seconds

struct Utterance {
    double pause = 0;  // seconds after it
    std::vector<int64_t> ids;
};

using Tensors = std::map<std::string, Ort::Value>;

// One ONNX file: named tensors in, named tensors out.
class Stage {
public:
    Stage(Ort::Env& env, const std::string& path, const Ort::SessionOptions& options)
        : session_(env, path.c_str(), options) {
        Ort::AllocatorWithDefaultOptions allocator;
        for (size_t i = 0; i < session_.GetOutputCount(); ++i)
            outputs_.emplace_back(session_.GetOutputNameAllocated(i, allocator).get());
    }

    Tensors run(Tensors inputs) {
        std::vector<const char*> in, out;
        std::vector<Ort::Value> values;
        for (auto& [name, value] : inputs) {
            in.push_back(name.c_str());
            values.push_back(std::move(value));
        }
        for (const auto& name : outputs_) out.push_back(name.c_str());
        auto made = session_.Run(Ort::RunOptions{nullptr}, in.data(), values.data(), in.size(), out.data(), out.size());
        Tensors results;
        for (size_t i = 0; i < made.size(); ++i) results.emplace(outputs_[i], std::move(made[i]));
        return results;
    }

private:
    Ort::Session session_;
    std::vector<std::string> outputs_;
};

// A tensor [1, N], or [1] for a single number, of data that must outlive it.
Ort::Value tensor(std::vector<int64_t>& data, bool row = true) {
    static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<int64_t> shape{1};
    if (row) shape.push_back(static_cast<int64_t>(data.size()));
    return Ort::Value::CreateTensor<int64_t>(memory, data.data(), data.size(), shape.data(), shape.size());
}

// Predicted frames of each symbol -> the symbol of each mel frame: frames are rounded half up, and a text that would
// vanish gets one for each symbol.
std::vector<int64_t> regulate(const float* duration, size_t symbols, float pace) {
    std::vector<int64_t> frames(symbols), index;
    for (size_t i = 0; i < symbols; ++i)
        frames[i] = static_cast<int64_t>(std::clamp(duration[i], 0.f, LONGEST_SYMBOL) / pace + 0.5f);
    if (std::all_of(frames.begin(), frames.end(), [](int64_t n) { return n == 0; })) frames.assign(symbols, 1);
    for (size_t i = 0; i < symbols; ++i) index.insert(index.end(), frames[i], static_cast<int64_t>(i));
    return index;
}

// Symbol ids -> samples.
std::vector<float> speak(Stage& encoder, Stage& decoder, Stage& generator, std::vector<int64_t> ids, float pace) {
    std::vector<int64_t> lengths{static_cast<int64_t>(ids.size())};
    Tensors inputs;
    inputs.emplace("symbols", tensor(ids));
    inputs.emplace("lengths", tensor(lengths, false));
    Tensors encoded = encoder.run(std::move(inputs));

    auto index = regulate(encoded.at("duration").GetTensorData<float>(), ids.size(), pace);
    std::vector<int64_t> mel_lengths{static_cast<int64_t>(index.size())};
    Tensors between;
    between.emplace("encoded", std::move(encoded.at("encoded")));
    between.emplace("pitch", std::move(encoded.at("pitch")));
    between.emplace("lengths", tensor(lengths, false));
    between.emplace("repeat_index", tensor(index));
    between.emplace("mel_lengths", tensor(mel_lengths, false));
    Tensors decoded = decoder.run(std::move(between));

    Tensors mel;
    mel.emplace("mel", std::move(decoded.at("mel")));
    Tensors made = generator.run(std::move(mel));
    const auto& audio = made.at("audio");
    const float* samples = audio.GetTensorData<float>();
    return {samples, samples + audio.GetTensorTypeAndShapeInfo().GetElementCount()};
}

// Whole samples of a time in seconds; half a sample is rounded to even, as Python does.
size_t samples_of(double seconds) { return static_cast<size_t>(std::nearbyint(seconds * RATE)); }

// A fade at both ends, so that joining an utterance to silence makes no click, and the pause after it.
void finish(std::vector<float>& samples, double pause) {
    const size_t size = samples.size(), fade = std::min(samples_of(FADE), size);
    for (size_t i = 0; i < fade; ++i) {
        const float gain = fade > 1 ? static_cast<float>(i) / static_cast<float>(fade - 1) : 0.f;
        samples[i] *= gain;
        samples[size - 1 - i] *= gain;
    }
    samples.resize(size + samples_of(pause), 0.f);
}

// A line for each utterance: the pause after it in seconds, then its symbols' ids.
std::vector<Utterance> read_utterances(std::istream& file) {
    std::vector<Utterance> utterances;
    std::string line;
    while (std::getline(file, line)) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        std::istringstream words(line);
        Utterance one;
        words >> one.pause;
        for (int64_t id; words >> id;) one.ids.push_back(id);
        const bool below = std::any_of(one.ids.begin(), one.ids.end(), [](int64_t id) { return id < 0; });
        if (one.ids.empty() || below || !words.eof() || !(0 <= one.pause && one.pause <= LONGEST_PAUSE))
            throw std::runtime_error("not a line of a pause and symbol ids: " + line);
        utterances.push_back(std::move(one));
    }
    if (utterances.empty()) throw std::runtime_error("no symbol ids to speak");
    return utterances;
}

// 2 is twice as fast.
float read_pace(const std::string& text) {
    char* end = nullptr;
    const float pace = std::strtof(text.c_str(), &end);
    if (end == text.c_str() || *end || !(0.1f <= pace && pace <= 10))
        throw std::runtime_error("the pace must be a number from 0.1 to 10, not '" + text + "'");
    return pace;
}

void put(std::ostream& file, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file.put(static_cast<char>(value >> (8 * i) & 0xff));
}

// One channel of 16 bits.
void write_wav(const std::string& path, const std::vector<float>& samples) {
    std::ofstream file(path, std::ios::binary);
    const auto bytes = static_cast<uint32_t>(2 * samples.size());
    file << "RIFF";
    put(file, 36 + bytes, 4);
    file << "WAVEfmt ";
    put(file, 16, 4);
    put(file, 1, 2);  // PCM
    put(file, 1, 2);  // channels
    put(file, RATE, 4);
    put(file, 2 * RATE, 4);
    put(file, 2, 2);  // bytes of a sample
    put(file, 16, 2);
    file << "data";
    put(file, bytes, 4);
    for (float sample : samples)
        put(file, static_cast<uint16_t>(std::lround(std::clamp(sample, -1.f, 1.f) * 32767.f)), 2);
    if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

int main(int count, char** words) try {
    if (count != 5 && count != 6) {
        std::cerr << "usage: " << words[0] << " FASTPITCH_FOLDER HIFIGAN_FOLDER IDS_FILE|- OUTPUT.wav [PACE]\n";
        return 2;
    }
    const std::string fastpitch = words[1], hifigan = words[2], source = words[3];
    const float pace = count == 6 ? read_pace(words[5]) : 1.f;
    std::ifstream file;
    if (source != "-") {
        file.open(source);
        if (!file) throw std::runtime_error(source + " cannot be read");
    }
    const auto utterances = read_utterances(source == "-" ? std::cin : file);

    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "speak");
    Ort::SessionOptions options;
    Stage encoder(env, fastpitch + "/fastpitch.encoder.onnx", options);
    Stage decoder(env, fastpitch + "/fastpitch.decoder.onnx", options);
    Stage generator(env, hifigan + "/hifigan.generator.onnx", options);
    std::vector<float> speech;
    for (const auto& one : utterances) {
        auto samples = speak(encoder, decoder, generator, one.ids, pace);
        finish(samples, one.pause);
        speech.insert(speech.end(), samples.begin(), samples.end());
    }
    write_wav(words[4], speech);
    std::printf("%s: %.2f s\n", words[4], static_cast<double>(speech.size()) / RATE);
    return 0;
} catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
}
