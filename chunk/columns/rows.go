package columns

import "github.com/gpurun/gpurun/chunk/encode/npy"

// Array returns the array that holds a column.
func (c Column) Array() npy.Array {
	names := map[Kind]string{Float16: "<f2", Float32: "<f4", Float64: "<f8", Int64: "<i8", Bool: "|b1"}
	return npy.Array{DType: names[c.Kind], Width: c.Width, Shape: c.Dimensions}
}

// MaskArray is the array of a mask.
var MaskArray = npy.Array{DType: "|u1"}
