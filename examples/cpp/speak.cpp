// Speaks with FastPitch and HiFi-GAN as `melforge export` writes them, by ONNX Runtime's C++ API alone.
// How to build and run it: examples/cpp/README.md.

#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

constexpr int RATE = 22050;             // samples per second
constexpr int HOP = 256;                // samples per mel frame
constexpr float LONGEST_SYMBOL = 75.f;  // frames; what is longer is an error of the network
constexpr double FADE = 0.004;          // seconds at both ends of an utterance
constexpr double LONGEST_PAUSE = 3600;  // seconds
constexpr double PI = 3.141592653589793;
constexpr uint64_t SEED = 0;            // of the noise in every utterance, as where `melforge speak` is given none

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
        for (size_t i = 0; i < session_.GetInputCount(); ++i)
            inputs_[session_.GetInputNameAllocated(i, allocator).get()] =
                session_.GetInputTypeInfo(i).GetTensorTypeAndShapeInfo().GetShape();
        for (size_t i = 0; i < session_.GetOutputCount(); ++i)
            outputs_.emplace_back(session_.GetOutputNameAllocated(i, allocator).get());
    }

    // The shape of each input; -1 is any length.
    const std::map<std::string, std::vector<int64_t>>& inputs() const { return inputs_; }

    // The inputs stay the caller's.
    Tensors run(Tensors& inputs) {
        std::vector<const char*> in, out;
        std::vector<Ort::Value> values;
        for (auto& [name, value] : inputs) {
            in.push_back(name.c_str());
            values.push_back(std::move(value));
        }
        for (const auto& name : outputs_) out.push_back(name.c_str());
        auto made = session_.Run(Ort::RunOptions{nullptr}, in.data(), values.data(), in.size(), out.data(), out.size());
        auto given = values.begin();
        for (auto& [name, value] : inputs) value = std::move(*given++);
        Tensors results;
        for (size_t i = 0; i < made.size(); ++i) results.emplace(outputs_[i], std::move(made[i]));
        return results;
    }

private:
    Ort::Session session_;
    std::map<std::string, std::vector<int64_t>> inputs_;
    std::vector<std::string> outputs_;
};

// A tensor of data that must outlive it.
template <typename T>
Ort::Value tensor(std::vector<T>& data, const std::vector<int64_t>& shape) {
    static const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    return Ort::Value::CreateTensor<T>(memory, data.data(), data.size(), shape.data(), shape.size());
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

// A block of random bits: Philox4x64-10 (Salmon and others, SC 2011) of the key (seed, 0).
std::array<uint64_t, 4> random_words(uint64_t seed, uint64_t block) {
    std::array<uint64_t, 4> x{block + 1, 0, 0, 0};
    std::array<uint64_t, 2> key{seed, 0};
    for (int round = 0; round < 10; ++round) {
        const auto first = static_cast<unsigned __int128>(0xD2E7470EE14C6C93) * x[0];
        const auto second = static_cast<unsigned __int128>(0xCA5A826395121157) * x[2];
        x = {static_cast<uint64_t>(second >> 64) ^ x[1] ^ key[0], static_cast<uint64_t>(second),
             static_cast<uint64_t>(first >> 64) ^ x[3] ^ key[1], static_cast<uint64_t>(first)};
        key[0] += 0x9E3779B97F4A7C15;
        key[1] += 0xBB67AE8584CAA73B;
    }
    return x;
}

// What 16 random bits stand for, in rising order: the normal distribution's quantiles of (k + 0.5) / 65536, scaled to a
// variance of 1.
std::vector<float> normal_values() {
    constexpr int half = 1 << 15;
    std::array<double, half> upper;
    double value = 0, squares = 0;
    for (int k = 0; k < half; ++k) {
        const double above = (half - k - 0.5) / (2 * half);  // the share of greater ones
        for (int step = 0; step < 8; ++step) {                // Newton's, from the quantile before
            const double density = std::exp(-0.5 * value * value) / std::sqrt(2 * PI);
            value += (0.5 * std::erfc(value / std::sqrt(2.0)) - above) / density;
        }
        upper[k] = value;
        squares += value * value;
    }
    std::vector<float> values(2 * half);
    for (int k = 0; k < half; ++k) {
        values[half + k] = static_cast<float>(upper[k] / std::sqrt(squares / half));
        values[half - 1 - k] = -values[half + k];
    }
    return values;
}

// The first numbers of a seed, as common/noise.py draws them: four of each word, its lowest bits first.
std::vector<float> normal_noise(uint64_t seed, size_t count) {
    static const auto values = normal_values();
    std::array<uint64_t, 4> words{};
    std::vector<float> noise(count);
    for (size_t i = 0; i < count; ++i) {
        if (i % 16 == 0) words = random_words(seed, i / 16);
        noise[i] = values[words[i / 4 % 4] >> (i % 4 * 16) & 0xffff];
    }
    return noise;
}

// Pitch at the frames' centres, in cycles a sample -> what the generator takes beside the mel, [channels, frames]: the
// phase there in cycles, less the whole ones, the pitch, and noise.
std::vector<float> source_of(const float* pitch, size_t frames, size_t channels) {
    std::vector<float> source(channels * frames);
    double phase = 0;
    for (size_t t = 0; t < frames; ++t) {
        if (t) phase += 0.5 * HOP * (static_cast<double>(pitch[t]) + pitch[t - 1]);
        source[t] = static_cast<float>(phase - std::floor(phase));
        source[frames + t] = pitch[t];
    }
    const size_t beside = channels - 2;
    const auto noise = normal_noise(SEED, frames * beside);  // drawn frame by frame
    for (size_t i = 0; i < noise.size(); ++i) source[(2 + i % beside) * frames + i / beside] = noise[i];
    return source;
}

// Symbol ids -> mel.
Ort::Value speak(Stage& encoder, Stage& decoder, std::vector<int64_t> ids, float pace) {
    const auto symbols = static_cast<int64_t>(ids.size());
    std::vector<int64_t> lengths{symbols};
    Tensors inputs;
    inputs.emplace("symbols", tensor(ids, {1, symbols}));
    inputs.emplace("lengths", tensor(lengths, {1}));
    Tensors encoded = encoder.run(inputs);

    auto index = regulate(encoded.at("duration").GetTensorData<float>(), ids.size(), pace);
    const auto frames = static_cast<int64_t>(index.size());
    std::vector<int64_t> mel_lengths{frames};
    Tensors between;
    between.emplace("encoded", std::move(encoded.at("encoded")));
    between.emplace("pitch", std::move(encoded.at("pitch")));
    between.emplace("lengths", tensor(lengths, {1}));
    between.emplace("repeat_index", tensor(index, {1, frames}));
    between.emplace("mel_lengths", tensor(mel_lengths, {1}));
    Tensors decoded = decoder.run(between);
    return std::move(decoded.at("mel"));
}

// HiFi-GAN, of either kind.
class Vocoder {
public:
    Vocoder(Ort::Env& env, const std::string& folder, const Ort::SessionOptions& options)
        : generator_(env, folder + "/hifigan.generator.onnx", options) {
        const auto found = generator_.inputs().find("source");
        if (found == generator_.inputs().end()) return;
        channels_ = found->second.at(1);
        pitch_.emplace(env, folder + "/hifigan.pitch.onnx", options);
    }

    // Mel -> samples.
    std::vector<float> run(Ort::Value mel) {
        std::vector<float> source;
        Tensors inputs;
        inputs.emplace("mel", std::move(mel));
        if (pitch_) {
            Tensors found = pitch_->run(inputs);
            const auto frames = found.at("pitch").GetTensorTypeAndShapeInfo().GetShape().at(1);
            source = source_of(found.at("pitch").GetTensorData<float>(), static_cast<size_t>(frames),
                               static_cast<size_t>(channels_));
            inputs.emplace("source", tensor(source, {1, channels_, frames}));
        }
        Tensors made = generator_.run(inputs);
        const auto& audio = made.at("audio");
        const float* samples = audio.GetTensorData<float>();
        return {samples, samples + audio.GetTensorTypeAndShapeInfo().GetElementCount()};
    }

private:
    Stage generator_;
    std::optional<Stage> pitch_;  // where the generator has a harmonic source
    int64_t channels_ = 0;        // of that source
};

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
    const std::string fastpitch = words[1], hifigan = words[2], lines = words[3];
    const float pace = count == 6 ? read_pace(words[5]) : 1.f;
    std::ifstream file;
    if (lines != "-") {
        file.open(lines);
        if (!file) throw std::runtime_error(lines + " cannot be read");
    }
    const auto utterances = read_utterances(lines == "-" ? std::cin : file);

    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "speak");
    Ort::SessionOptions options;
    Stage encoder(env, fastpitch + "/fastpitch.encoder.onnx", options);
    Stage decoder(env, fastpitch + "/fastpitch.decoder.onnx", options);
    Vocoder vocoder(env, hifigan, options);
    std::vector<float> speech;
    for (const auto& one : utterances) {
        auto samples = vocoder.run(speak(encoder, decoder, one.ids, pace));
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
