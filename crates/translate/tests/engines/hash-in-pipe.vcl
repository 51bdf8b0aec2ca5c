# difference: hash-in-synth
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_pipe {
  set bereq.http.h = req.hash;
}
