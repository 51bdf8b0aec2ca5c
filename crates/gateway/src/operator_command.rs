//! `operator`: what the Gateways of a cluster ask for, written into it.

use std::process::ExitCode;

use anyhow::Context;
use chaperone::Shutdown;
use operator::Settings;
use tokio::sync::watch;

use crate::cli::OperatorArguments;
use crate::signals;

pub(crate) async fn run(arguments: OperatorArguments) -> anyhow::Result<ExitCode> {
    if arguments.clean_up {
        let client = source::kubernetes::connect().await?;
        let settings = Settings::from_environment()?;
        operator::clean_up(&client, &settings, arguments.deployment.as_deref()).await.context("clean-up")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut signals = signals::watch_signals()?;
    let settings = Settings::from_environment()?;
    let client = source::kubernetes::connect().await?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        let _ = signals.wait_for(|asked| *asked > Shutdown::Run).await;
        stop.send_replace(true);
    });
    operator::run(client, settings, stopped).await.context("operator")?;
    Ok(ExitCode::SUCCESS)
}
