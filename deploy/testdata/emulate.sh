# Runs a job with $1, a program for arm64, on an emulated processor: $2 is qemu-aarch64. The
# processes that the program starts are emulated too: this user namespace has a binfmt_misc of
# its own, so nothing changes outside of it. Run by TestOtherArchitecture.
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":gpurun-arm64:M::$magic:$mask:$2:OCF" >/proc/sys/fs/binfmt_misc/register
echo registered
awk 'BEGIN { for (i = 0; i < 200; i++) printf "{\"id\":%d,\"text\":\"record %d\"}\n", i, i }' >in.jsonl
"$1" run -k echo in.jsonl -o out.jsonl --gpus cpu:2 --batch-size 16
cmp in.jsonl out.jsonl
echo same
