# difference: hash-in-synth
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_synth {
  set resp.http.h = req.hash;
}
