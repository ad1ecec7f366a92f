package gpu_test

import (
	"encoding/json"
	"testing"

	"github.com/gpurun/gpurun/gpu"
)

func TestOptional(t *testing.T) {
	var none gpu.Optional[int]
	zero := gpu.Some(0)
	if none.String() != "not supported" || zero.String() != "0" || !none.IsZero() || zero.IsZero() || none.Or(7) != 7 || zero.Or(7) != 0 {
		t.Errorf("%v %v", none, zero)
	}
	sample := gpu.Sample{Temperature: zero, Throttle: gpu.Some(gpu.Reasons(4 | 64))}
	text, err := json.Marshal(sample)
	want := `{"temperature_c":0,"throttle_reasons":"sw_power_cap,hw_thermal_slowdown"}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	var back gpu.Sample
	if err := json.Unmarshal(text, &back); err != nil || back.Temperature != zero || !back.Fan.IsZero() || !back.Throttle.Or(0).Thermal() {
		t.Errorf("%+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"temperature_c":null}`), &back); err != nil || !back.Temperature.IsZero() {
		t.Errorf("%+v, %v", back, err)
	}
	if gpu.Reasons(0).String() != "none" || gpu.Reasons(32).String() != "sw_thermal_slowdown" {
		t.Error(gpu.Reasons(32))
	}
}
